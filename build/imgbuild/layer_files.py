"""Compare the files of layers, as they stream out of the archives that an engine saves."""

import hashlib
import json
import re
import tarfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

from imgbuild.catalog.comparison import differing

#: Where Debian's package manager has what is installed, and a package there.
_STATUS = "var/lib/dpkg/status"
_PACKAGE = re.compile(r"^Package: (.+)\n(?:.+\n)*?Version: (.+)$", re.MULTILINE)
_TYPES = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "symbolic link", tarfile.LNKTYPE: "hard link"}
#: What differs, by name: as it was and as it is, None where it is missing.
Differences = Mapping[str, tuple[str | int | None, str | int | None]]


class LayerFiles(NamedTuple):
    """What a layer says of each file by its path, and the versions of Debian packages it lists."""

    files: Mapping[str, Mapping[str, str]]
    packages: Mapping[str, str]


#: The files of a layer that is not there.
NOTHING = LayerFiles({}, {})


def read_layers(pieces: Iterable[bytes], same: Collection[str]) -> list[LayerFiles | None]:
    """Return the layers in an archive, the lowest first, None for one that was not read.

    Of a file's content only the sha256 is kept. A graph driver names a layer by its diff id: those
    of ``same`` are not read.
    """
    left, found, order = iter(pieces), dict[str, LayerFiles](), list[str]()
    # A piece may be larger than what tarfile asks for.
    stream: Any = SimpleNamespace(read=lambda _: next(left, b""))
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            file: Any = archive.extractfile(member)
            if member.name == "manifest.json":
                order = json.load(file)[0]["Layers"]
            elif file and f"sha256:{member.name.rpartition('/')[2]}" not in same:
                # Another file than a layer is no tar file.
                with suppress(tarfile.ReadError), tarfile.open(fileobj=file, mode="r|*") as layer:
                    found[member.name] = _read_layer(layer)
    return [found.get(name) for name in order]


def file_differences(
    old: LayerFiles | None, new: LayerFiles | None
) -> dict[str, Differences] | None:
    """Return, by path, in what files differ: in all that is said of one that one layer lacks.

    None if one of the layers was not read.
    """
    if old is None or new is None:
        return None
    paths = sorted({*old.files, *new.files})
    found = {path: differing(old.files.get(path, {}), new.files.get(path, {})) for path in paths}
    return {path: differences for path, differences in found.items() if differences}


def _read_layer(layer: tarfile.TarFile) -> LayerFiles:
    files, packages = dict[str, Mapping[str, str]](), dict[str, str]()
    for member in layer:
        content = member.linkname or f"{member.devmajor}:{member.devminor}"
        file: Any = layer.extractfile(member) if member.isreg() else None
        if file and member.name == _STATUS:
            status = file.read()
            content = hashlib.sha256(status).hexdigest()
            packages = dict(_PACKAGE.findall(status.decode(errors="replace")))
        elif file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        files[member.name] = {
            "type": "file" if file else _TYPES.get(member.type, "device"),
            "content": content,
            "time": datetime.fromtimestamp(member.mtime, UTC).isoformat(),
            "mode": f"{member.mode:o}",
            "owner": f"{member.uid}:{member.gid}",
            **{key: value for key, value in member.pax_headers.items() if "xattr" in key},
        }
    return LayerFiles(files, packages)
