"""Resolve packages with uv, without running any package's code on this machine.

uv runs with ``--only-binary :all:``, so it uses only wheels. imgbuild exempts a package without a
usable wheel by its name (``--no-binary NAME``). For such a package, imgbuild gives uv the metadata,
so uv does not build the package to learn it.
"""

import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.errors import MessageError
from email.parser import HeaderParser
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.pylock import Pylock, PylockValidationError
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.files import file_sha256
from imgbuild.core.process import TIMED_OUT, Finished, run
from imgbuild.core.sources import Kind, Source
from imgbuild.core.unpacking import read_member
from imgbuild.locks.lockfile import Lock
from imgbuild.net.addresses import redact

#: Time limit for one run of uv, including its own retries. A resolution takes about 3 s.
TIMEOUT_SECONDS = 300
#: Limit for runs of uv in one resolution. Each package without a wheel needs one or two.
ROUNDS = 50
#: Limit for source distributions that are skipped because their metadata is not usable. Getting the
#: metadata of one takes seconds.
MOST_FAULTS = 8
#: Size limit for the metadata of a package, in bytes. TensorFlow's metadata has 4 kB.
LARGEST_METADATA = 1 << 20
#: Large packages whose compilation takes hours or needs other compilers or system libraries.
NEVER_COMPILED = frozenset(
    {
        *("cryptography", "grpcio", "h5py", "jax", "llvmlite", "lxml", "matplotlib", "mpi4py"),
        *("numba", "numpy", "opencv-contrib-python", "opencv-contrib-python-headless"),
        *("opencv-python", "opencv-python-headless", "pandas", "pillow", "pyarrow"),
        *("scikit-image", "scikit-learn", "scipy", "tables", "tensorflow-addons", "tokenizers"),
    }
)
#: uv's options for the format of locks: all hashes, and nothing that depends on the machine.
_FORM = ("--no-header", "--no-annotate", "--generate-hashes", "--no-emit-index-url")
_UNREACHABLE = ("error sending request", "dns error", "failed to fetch", "connection refused")
_NO_WHEEL = re.compile(r"Wheels are required for `([A-Za-z0-9._-]+)`")
_NO_SOURCE = re.compile(r"A source distribution is required for `([A-Za-z0-9._-]+)`")
#: The build options in the output of ``uv --show-settings``; group 1 has the no-binary packages.
_BUILD_OPTIONS = re.compile(
    r"build_options: BuildOptions \{\s*"
    r"no_binary: (?:None|All|Packages\(\s*\[([^\]]*)\],?\s*\)),\s*no_build: All,\s*\}"
)
_ANY_VERSION = re.compile(r'name: PackageName\(\s*"([^"]+)",\s*\),\s*version: None,')
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class PackageMetadata:
    """The metadata of a release: required packages, Python versions, extras, and build tools.

    ``build_requires`` is empty for a release that does not need to be built.
    """

    requires: tuple[str, ...] = ()
    python: str = ""
    extras: tuple[str, ...] = ()
    build_requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """The Python and platform that packages are for.

    ``python`` is a version with or without its patch number: 3.6.15 or 3.6. ``platform`` is one of
    uv's platforms. A wheel may require ``glibc`` or an older version.
    """

    python: str
    platform: str
    glibc: str = "2.17"

    @property
    def minor(self) -> str:
        return ".".join(self.python.split(".")[:2])

    @property
    def machine(self) -> str:
        """The machine as ``uname`` names it, for example ``x86_64``."""
        return self.platform.partition("-")[0]

    @property
    def options(self) -> tuple[str, ...]:
        return ("--python-version", self.python, "--python-platform", self.platform)


#: Returns the metadata of a release, given its name, version, source distribution and target.
ReadMetadata = Callable[[str, str, Source, Target], PackageMetadata]
#: Returns the requirements of each package of a lock, given the lock, its file name and the target.
ReadRequirements = Callable[[Lock, str, Target], Mapping[str, Sequence[str]]]


@dataclass
class Unbuilt:
    """Packages without a usable wheel, with the metadata of their releases by version."""

    releases: dict[str, dict[str, PackageMetadata]] = field(default_factory=dict)
    #: Packages without a usable source distribution. They stay out of ``releases``.
    wheels_only: set[str] = field(default_factory=set)

    @property
    def options(self) -> list[str]:
        options: list[str] = []
        for name in sorted(self.releases):
            options += ["--no-binary", name]
        return options

    @property
    def toml(self) -> str:
        """The ``dependency-metadata`` for uv; an entry without a version keeps uv from building."""
        lines = []
        for name, releases in sorted(self.releases.items()):
            lines += ["[[dependency-metadata]]", f"name = {json.dumps(name)}", "requires-dist = []"]
            for version, metadata in sorted(releases.items()):
                lines += ["[[dependency-metadata]]", f"name = {json.dumps(name)}"]
                lines += [f"version = {json.dumps(version)}"]
                lines += [f"requires-dist = {json.dumps(metadata.requires)}"]
                lines += [f"provides-extra = {json.dumps(metadata.extras)}"]
                if metadata.python:
                    lines += [f"requires-python = {json.dumps(metadata.python)}"]
        return "".join(f"{line}\n" for line in lines)

    def learn(self, errors: str, has_wheel: Callable[[str], bool]) -> bool:
        """Update the exempt packages from uv's errors; return whether another run may succeed.

        uv uses no wheel of an exempt package, so as few packages as possible become exempt: of the
        packages that uv names, those without a wheel of any release. If all have one, all become
        exempt.
        """
        named = {canonicalize_name(name) for name in _NO_SOURCE.findall(errors)}
        impossible = named & self.releases.keys()
        self.wheels_only |= impossible
        for name in impossible:
            del self.releases[name]
        named = {canonicalize_name(name) for name in _NO_WHEEL.findall(errors)}
        added = named - self.releases.keys() - self.wheels_only - NEVER_COMPILED
        added = {name for name in added if not has_wheel(name)} or added
        self.releases |= {name: {} for name in added}
        return bool(impossible or added)


def lock_packages(  # noqa: PLR0913, PLR0917 - what, for which target, and how
    options: Sequence[str],
    target: Target,
    folder: Path,
    environment: Mapping[str, str],
    previous: str,
    read_metadata: ReadMetadata,
    limits: Sequence[str] = (),
    wheels_only: Collection[str] = (),
) -> tuple[str, Finished]:
    """Resolve ``options`` with uv; return the text of the lock and the result of uv's last run.

    The text is empty if there is no solution. ``folder`` has the files that ``options`` name.
    uv prefers the versions in ``previous``, the text of a lock. ``limits`` are options that exclude
    files of the index by their upload time. Of the packages ``wheels_only``, no source distribution
    is used. If the metadata of a version cannot be made, the version is skipped, provided that
    another one satisfies the requirements.

    CheckFailedError: the metadata of a package cannot be made, or `ROUNDS` runs are not enough.
    MachineError: the index does not answer, or this machine cannot make metadata.
    """
    unbuilt, output = Unbuilt(wheels_only={*wheels_only}), folder / "lock.txt"
    source_hashes: dict[str, str] = {}  # by pin, for example six==1.0
    unusable, faults = list[str](), list[CheckFailedError]()
    passed_over = folder / "passed-over.txt"
    options = [*_FORM, *target.options, *limits, *options, "--output-file", output.name]
    options += [f"--constraint={passed_over.name}"]

    @cache
    def has_wheel(name: str) -> bool:
        (folder / "wheel.in").write_text(name, encoding="utf-8")
        arguments = ["--no-deps", *target.options, *limits]
        arguments += ["--output-file", "wheel.txt", "wheel.in"]
        return call_uv(arguments, folder, environment).ok

    for _ in range(ROUNDS):
        output.write_text(previous, encoding="utf-8")
        passed_over.write_text("\n".join(unusable), encoding="utf-8")
        result = call_uv(options, folder, environment, unbuilt)
        if not result.ok:
            if unbuilt.learn(result.errors, has_wheel):
                continue
            if faults:
                raise faults[0]
            return "", result
        text = output.read_text(encoding="utf-8")
        pins = _PINNED.findall(text)
        versions = {str(canonicalize_name(name)): version for name, version in pins}
        unknown = {
            name: versions[name]
            for name, releases in unbuilt.releases.items()
            if name in versions and versions[name] not in releases
        }
        if not unknown:
            return _add_hashes(text, source_hashes), result
        for name, source in find_sources(unknown, target, folder, environment).items():
            version = unknown[name]
            try:
                metadata = read_metadata(name, version, source, target)
            except CheckFailedError as error:
                faults.append(error)
                unusable.append(f"{name}!={version}")
                if len(faults) > MOST_FAULTS:
                    raise faults[0] from None
                continue
            unbuilt.releases[name][version] = metadata
            source_hashes[f"{name}=={version}"] = source.sha256
    raise CheckFailedError(
        f"After {ROUNDS} runs, uv still needs metadata of source distributions of these packages: "
        f"{', '.join(sorted(unbuilt.releases))}. Require exact versions of them."
    )


def _add_hashes(text: str, source_hashes: Mapping[str, str]) -> str:
    """Add the hash of each source distribution that has no hash in the lock.

    uv writes no hash of a file that it did not read, for example if the index is a folder.
    """
    for pin, sha256 in source_hashes.items():
        line = re.compile(rf"^{re.escape(pin)}( ;[^\\\n]*)?$", re.MULTILINE)
        text = line.sub(rf"\g<0> \\\n    --hash=sha256:{sha256}", text)
    return text


def find_sources(
    pins: Mapping[str, str], target: Target, folder: Path, environment: Mapping[str, str]
) -> dict[str, Source]:
    """Return the source distribution of each pinned package, by name.

    MachineError: the index does not answer, or lacks the source distribution of a package.
    """
    sources: dict[str, Source] = {}
    unbuilt = Unbuilt({name: {} for name in pins})
    names = ", ".join(f"{name} {version}" for name, version in pins.items())
    for package in find_files(names, pins, target, folder, environment, unbuilt).packages:
        sdist = package.sdist
        if sdist is None or not sdist.url:
            break
        digest = file_digest(sdist.filename, sdist.url, sdist.hashes)
        with suppress(ValueError):  # the index gave an invalid name or sha256
            source = Source(sdist.filename, sdist.url, digest, kind=Kind.PYTHON)
            sources[str(package.name)] = source
    if pins.keys() != sources.keys():
        raise MachineError(
            f"The package index does not have a source distribution for each of {names}. "
            "Use another index."
        )
    return sources


def find_files(  # noqa: PLR0913, PLR0917 - what, for which target, and how
    lock: str,
    pins: Mapping[str, str],
    target: Target,
    folder: Path,
    environment: Mapping[str, str],
    unbuilt: Unbuilt | None = None,
) -> Pylock:
    """Return the files of the index for exact versions: wheels, or else source distributions.

    uv ignores the requirements of the packages, so it needs no metadata. ``lock`` names the origin
    of ``pins`` in the error.

    MachineError: the index does not answer, or does not have all versions.
    """
    unbuilt = unbuilt or Unbuilt()
    lines = (f"{name}=={version}\n" for name, version in pins.items())
    (folder / "files.in").write_text("".join(lines), encoding="utf-8")
    output, result = folder / "pylock.toml", Finished(1)
    options = ["--no-deps", *target.options, "--format", "pylock.toml"]
    options += ["--output-file", output.name, "files.in"]
    for _ in range(ROUNDS + len(pins)):
        output.unlink(missing_ok=True)
        result = call_uv(options, folder, environment, unbuilt)
        if result.ok:
            with suppress(PylockValidationError, ValueError):
                return Pylock.from_dict(tomllib.loads(output.read_text(encoding="utf-8")))
            break
        if not unbuilt.learn(result.errors, lambda _: False):
            break
    reason = " ".join(result.errors.split()) or result.last()
    raise MachineError(f"The package index did not give the files of {lock}: {reason}")


def file_digest(name: str, url: str, hashes: Mapping[str, str]) -> str:
    """Return the sha256 of a file of an index.

    An index that is a folder has no hashes, so imgbuild reads the file itself. The file's name must
    be ``name``, because an index on the network can link to any file of this machine.

    MachineError: the index has no sha256 for the file, or the local file cannot be read or has
        another name.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and Path(unquote(parts.path)).name != name:
        raise MachineError(
            f"The package index links {name} to {unquote(parts.path)}, another file on this "
            "machine. Use another index."
        )
    if digest := hashes.get("sha256"):
        return digest
    if parts.scheme != "file":
        raise MachineError(f"The package index has no sha256 for {redact(url)}. Use another index.")
    try:
        return file_sha256(Path(unquote(parts.path)))
    except OSError as error:
        raise MachineError(f"{unquote(parts.path)} cannot be read: {error.strerror}.") from None


def explain_refusal(result: Finished, lock: str) -> str:
    """Return why uv found no solution, or an empty text if it found one.

    MachineError: the index cannot be reached, or its certificate is not trusted.
    """
    reason = "" if result.ok else " ".join(result.errors.split()) or result.last()
    if "invalid peer certificate" in reason.lower():  # uv's advice names an option of uv
        raise MachineError(
            f"The certificate of the Python package index is not trusted, so {lock} cannot be "
            "resolved. If this network has its own certificate authority, enter it in the settings "
            "with `imgbuild doctor --write`."
        )
    if any(sign in reason.lower() for sign in _UNREACHABLE):
        raise MachineError(
            f"The Python package index cannot be reached to resolve {lock}: {reason}"
        )
    return reason


def call_uv(  # noqa: PLR0913 - what, where, and with which exceptions
    options: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    unbuilt: Unbuilt | None = None,
    *,
    text: str = "",
    timeout: float | None = None,
) -> Finished:
    """Run ``uv pip compile`` with wheels only, except for the packages in ``unbuilt``.

    ``text`` is uv's standard input.

    InputError: uv's own settings allow it to build packages.
    MachineError: uv does not finish within ``timeout`` seconds (by default `TIMEOUT_SECONDS`), or
        its settings cannot be read.
    """
    from uv import find_uv_bin  # noqa: PLC0415 - imported only if uv runs

    unbuilt = unbuilt or Unbuilt()
    # An active virtual environment must not affect the result.
    env = {name: value for name, value in environment.items() if name != "VIRTUAL_ENV"}
    command = [find_uv_bin(), "pip", "compile", "--only-binary", ":all:", *unbuilt.options]
    # Without this option, uv starts every Python in PATH to find one with the target's version.
    command += ["--python", sys.executable]
    command += [*_write_configuration(unbuilt, folder, env), *options]
    timeout = timeout or TIMEOUT_SECONDS
    result = run([*command, "--show-settings"], timeout=timeout, env=env, cwd=folder)
    if result.ok:
        _require_no_builds(result.output)
        result = run([*command, "--quiet"], timeout=timeout, env=env, cwd=folder, text=text)
    if result.code == TIMED_OUT:
        raise MachineError(
            f"uv did not finish within {timeout} s. Run `imgbuild doctor` to see whether the "
            "Python package index can be reached."
        )
    return result


def _write_configuration(
    unbuilt: Unbuilt, folder: Path, environment: Mapping[str, str]
) -> list[str]:
    """Write uv's settings for ``unbuilt`` to ``folder``; return the option that selects the file.

    By default uv reads ``uv.toml`` from its working folder and also the files of the user and the
    system, which may name the index. If UV_CONFIG_FILE or UV_NO_CONFIG is set, uv would not read
    the file in its working folder, so an option is needed.
    """
    path = folder / "uv.toml"
    # Without this file, uv searches the parent folders, and any user can write to /tmp.
    path.write_text("", encoding="utf-8")
    if not unbuilt.releases:
        return []
    own = environment.get("UV_CONFIG_FILE")
    try:
        known = Path(own).read_text(encoding="utf-8") if own else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"UV_CONFIG_FILE: {own} cannot be read ({error}). Correct or unset the variable."
        ) from None
    path.write_text(f"{known}\n{unbuilt.toml}", encoding="utf-8")
    alone = own or environment.get("UV_NO_CONFIG")
    return ["--config-file", path.name] if alone else []


def _require_no_builds(settings: str) -> None:
    """Raise InputError if uv would build a package with these settings.

    uv's own settings can add names to ``--no-binary``, which allows uv to build these packages.

    MachineError: the settings have an unknown format.
    """
    match = _BUILD_OPTIONS.search(settings)
    if match is None:
        raise MachineError(
            "imgbuild cannot read the settings that uv prints, so uv might build packages on this "
            "machine. Install imgbuild again, with the version of uv that it requires."
        )
    _, _, metadata = settings.partition("dependency_metadata: ")
    known = {*_ANY_VERSION.findall(metadata.partition("output_file: ")[0])}
    named = {*re.findall(r'"([^"]+)"', match[1] or "")} - known
    if named:
        raise InputError(
            f"uv's settings have no-binary for {', '.join(sorted(named))}, so uv would run code of "
            "these packages on this machine. imgbuild builds packages only in containers. Remove "
            "no-binary from uv.toml: the user's, the system's, or the file in UV_CONFIG_FILE."
        )


def wheel_metadata(path: Path) -> str:
    """Return the METADATA of a wheel, whose content is not trusted.

    ValueError: the wheel does not have exactly one METADATA, or it is too large.
    """
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if _METADATA.fullmatch(name)]
        if len(names) != 1:
            raise ValueError("the wheel does not have exactly one METADATA file")
        return read_member(archive, names[0], LARGEST_METADATA).decode("utf-8")


def parse_metadata(text: str, name: str, version: str) -> PackageMetadata:
    """Parse the METADATA of a release, whose content is not trusted.

    ValueError: it is invalid or of another release, or has a requirement that an index cannot
        satisfy.
    """
    try:
        headers = HeaderParser().parsestr(text[:LARGEST_METADATA])
        own_name = canonicalize_name(str(headers.get("Name", "")), validate=True)
        if (own_name, Version(str(headers.get("Version", "")))) != (name, Version(version)):
            raise ValueError(f"the metadata is of {own_name} {headers.get('Version')}")
        python = str(SpecifierSet(str(headers.get("Requires-Python", ""))))
        requires = tuple(map(index_requirement, _clean_headers(headers.get_all("Requires-Dist"))))
        extras = _clean_headers(headers.get_all("Provides-Extra"))
        extras = [str(canonicalize_name(extra, validate=True)) for extra in extras]
    except (InvalidSpecifier, InvalidVersion, MessageError) as error:
        raise ValueError(str(error)) from None
    return PackageMetadata(requires, python, tuple(extras))


def _clean_headers(headers: Iterable[object] | None) -> list[str]:
    return [" ".join(str(header).split()) for header in headers or ()]


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement, whose content is not trusted.

    ValueError: it is invalid, is nested too deeply, or has a version with thousands of digits.
    """
    try:
        requirement = Requirement(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    for specifier in requirement.specifier:
        specifier.contains("0")  # `packaging` parses the version only when it compares
    return requirement


def index_requirement(text: str) -> str:
    """Return a requirement that an index can satisfy, as `packaging` formats it.

    ValueError: it is invalid, has a URL, or has characters other than printable ASCII.
    """
    try:
        requirement = parse_requirement(text)
    except ValueError as error:
        raise ValueError(f"{text[:200]!r} is not a valid requirement: {error}") from None
    written = str(requirement)
    if requirement.url or not (written.isascii() and written.isprintable()):
        raise ValueError(f"{text[:200]!r} cannot be satisfied from a package index")
    return written
