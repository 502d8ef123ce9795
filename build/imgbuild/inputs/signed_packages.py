"""Verify apt's lists and packages by the signature of their archive.

apt verifies files that it downloads, but not files that are already in its folders. File format:
Debian's RepositoryFormat. File names: ``URItoFileName`` in apt-pkg/strutl.cc.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from imgbuild.core.errors import InputError
from imgbuild.core.files import ContentStore, work_folder
from imgbuild.core.process import Finished, run
from imgbuild.core.sources import Kind, Source
from imgbuild.inputs.download import has_sha256

_GPGV_SECONDS = 30
_CLEARSIGNED = b"-----BEGIN PGP SIGNED MESSAGE-----"
_SIGNED_FILE = re.compile(r"^ ([0-9a-f]{64}) +[0-9]+ (\S+)\s*$", re.MULTILINE)
_NAMING = ("Package", "Version", "Architecture")
_FIELD = re.compile(r"^(Package|Version|Architecture|SHA256|Suite|Codename): (\S+)$", re.MULTILINE)


def gpgv(keyrings: Iterable[Path], *arguments: str) -> Finished:
    """Run gpgv; its output has GnuPG's status lines."""
    trust = [f"--keyring={keyring}" for keyring in keyrings]
    command = ["gpgv", "--quiet", "--status-fd=1", *trust, *arguments]
    return run(command, timeout=_GPGV_SECONDS)


def find_whole_file(store: ContentStore, digest: str) -> Path:
    """Return a file of a fetched folder; raise InputError if its sha256 is wrong."""
    path = store.path(digest)
    if not has_sha256(path, digest):
        raise InputError(
            f"{path} was damaged since it was fetched. Remove it, run `imgbuild build --fetch DIR` "
            "again where there is a network, and copy the folder anew."
        )
    return path


def verify_packages(items: Sequence[Source], store: ContentStore, keys: Sequence[Path]) -> None:
    """Raise InputError if a list is damaged, or if ``keys`` did not sign a list or package."""
    lists = {
        item.name: find_whole_file(store, item.sha256)
        for item in items
        if item.kind is Kind.APT_LIST
    }
    signed: set[tuple[str, str]] = set()
    for name, path in lists.items():
        start, _, last = name.rpartition("_")
        signature = lists.get(f"{name}.gpg") if last == "Release" else None
        if last == "InRelease" or signature:
            text = _release(name, path, signature, keys)
            signed.add((name, path.name))
            if signature:
                signed.add((f"{name}.gpg", signature.name))
            for digest, listed in _SIGNED_FILE.findall(text):
                file_name = listed.replace("/", "_")
                signed.add((f"{start}_{file_name}", digest))
    for name, path in lists.items():
        if name.endswith("_Packages") and (name, path.name) in signed:
            signed |= _packages(path)
    for item in items:
        apt = item.kind in {Kind.APT_LIST, Kind.APT_PACKAGE}
        if apt and (item.name, item.sha256) not in signed:
            raise _refusal(item.name, "no signed list of the archive has it with this sha256")


def _refusal(name: str, why: str) -> InputError:
    return InputError(
        f"{name} in the fetched folder: {why}. Find out who changed it; then run `imgbuild build "
        "--fetch DIR --refresh` where there is a network, and copy the folder anew."
    )


def _release(name: str, path: Path, signature: Path | None, keyrings: Sequence[Path]) -> str:
    """Return the signed text of an InRelease file, or of a Release file with its signature.

    The index must be of the suite in its name, because the same keys sign other suites.

    InputError: the file is not signed by ``keyrings``, or is the index of another suite.
    """
    before, *signed = path.read_bytes().split(_CLEARSIGNED)
    if not signature and (before or len(signed) != 1):
        raise _refusal(name, "it is not a signed index")
    with work_folder("signature") as folder:
        out = path if signature else folder / "Release"
        files = [signature, path] if signature else ["--output", out, path]
        result = gpgv(keyrings, *map(str, files))
        # Like apt, accept a file with one good signature, even if unknown keys signed it as well.
        if "[GNUPG:] GOODSIG " not in result.output or "[GNUPG:] BADSIG " in result.output:
            errors = " ".join(result.errors.split())
            said = f"gpgv refuses its signature ({errors[-80:]})"
            raise _refusal(name, f"{said}; if a mirror has its own key, set its `keyring`")
        text = out.read_text(encoding="utf-8")
    fields = dict(_FIELD.findall(text))
    _, dists, suite = name.rpartition("_")[0].rpartition("_dists_")
    own = {fields.get("Suite"), fields.get("Codename")}
    if dists and unquote(suite.replace("_", "/")) not in own:
        raise _refusal(name, f"it is the index of {fields.get('Codename')}")
    return text


@cache
def _packages(path: Path) -> frozenset[tuple[str, str]]:
    """Return the file name of each package in apt's cache, with its sha256."""
    packages = set()
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(_FIELD.findall(paragraph))
        name = "_".join(fields.get(key, "") for key in _NAMING)
        file_name = name.replace(":", "%3a") + ".deb"
        packages.add((file_name, fields.get("SHA256", "")))
    return frozenset(packages)
