"""Resolve packages with uv, which runs no code of a package on this machine.

uv gets ``--only-binary :all:``, so it uses wheels alone. A package without a usable wheel is an
exception by its name, and only together with metadata that uv reads instead of building anything.
"""

import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
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

#: uv's own retries included; a resolution takes about 3 s.
TIMEOUT_SECONDS = 300
#: How often uv is asked for one resolution: every package without a wheel takes one or two.
ROUNDS = 50
#: How many source distributions without usable metadata are passed over; each takes seconds.
MOST_FAULTS = 8
#: Largest metadata of a package, in bytes; TensorFlow's has 4 kB.
LARGEST_METADATA = 1 << 20
#: Large packages that take hours, other compilers or libraries of the system to compile.
NEVER_COMPILED = frozenset(
    {
        *("cryptography", "grpcio", "h5py", "jax", "llvmlite", "lxml", "matplotlib", "mpi4py"),
        *("numba", "numpy", "opencv-contrib-python", "opencv-contrib-python-headless"),
        *("opencv-python", "opencv-python-headless", "pandas", "pillow", "pyarrow"),
        *("scikit-image", "scikit-learn", "scipy", "tables", "tensorflow-addons", "tokenizers"),
    }
)
#: How uv writes locks: with every hash, and nothing that depends on the machine.
_FORM = ("--no-header", "--no-annotate", "--generate-hashes", "--no-emit-index-url")
_UNREACHABLE = ("error sending request", "dns error", "failed to fetch", "connection refused")
_NO_WHEEL = re.compile(r"Wheels are required for `([A-Za-z0-9._-]+)`")
_NO_SOURCE = re.compile(r"A source distribution is required for `([A-Za-z0-9._-]+)`")
#: The settings that uv prints (``--show-settings``).
_BUILD_OPTIONS = re.compile(
    r"build_options: BuildOptions \{\s*"
    r"no_binary: (?:None|All|Packages\(\s*\[([^\]]*)\],?\s*\)),\s*no_build: All,\s*\}"
)
_ANY_VERSION = re.compile(r'name: PackageName\(\s*"([^"]+)",\s*\),\s*version: None,')
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class PackageMetadata:
    """The requirements of a release: packages, versions of Python, and packages to build it.

    ``build_requires`` is empty for a release that is not built.
    """

    requires: tuple[str, ...] = ()
    python: str = ""
    extras: tuple[str, ...] = ()
    build_requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """The Python that packages are for, such as 3.6.15, and uv's name of its platform.

    Wheels are for ``glibc`` and older ones.
    """

    python: str
    platform: str
    glibc: str = "2.17"

    @property
    def minor(self) -> str:
        return ".".join(self.python.split(".")[:2])

    @property
    def options(self) -> tuple[str, ...]:
        return ("--python-version", self.python, "--python-platform", self.platform)


#: Returns the metadata of a release, by its name and version, from its source distribution.
ReadMetadata = Callable[[str, str, Source, Target], PackageMetadata]
#: Returns what each package of a lock requires.
ReadRequirements = Callable[[Lock, str, Target], Mapping[str, Sequence[str]]]


@dataclass
class Unbuilt:
    """Packages without a usable wheel, and what is known of their releases."""

    releases: dict[str, dict[str, PackageMetadata]] = field(default_factory=dict)
    #: Packages of which only wheels can satisfy, whatever else uv says.
    wheels_only: set[str] = field(default_factory=set)

    @property
    def options(self) -> list[str]:
        options: list[str] = []
        for name in sorted(self.releases):
            options += ["--no-binary", name]
        return options

    @property
    def toml(self) -> str:
        """The ``dependency-metadata`` of uv; an entry without version keeps uv from building."""
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
        """Change the exceptions by what uv says; return whether another try may succeed.

        A package that has a wheel of some release becomes an exception only if no other package
        does, because uv then uses none of its wheels.
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
) -> tuple[str, Finished]:
    """Return the lock that uv writes for ``options``, and how uv ended; empty if nothing satisfies.

    ``folder`` has the files that ``options`` name. Versions of ``previous``, a lock, are preferred.

    A version whose metadata cannot be made is passed over if another one will do.

    CheckFailedError: the metadata of a package cannot be made, or there is no end of them.
    MachineError: the index does not answer, or this machine cannot make metadata.
    """
    unbuilt, output = Unbuilt(), folder / "lock.txt"
    source_hashes: dict[str, str] = {}  # by requirement, such as six==1.0
    unusable, faults = list[str](), list[CheckFailedError]()
    passed_over = folder / "passed-over.txt"
    options = [*_FORM, *target.options, *options, "--output-file", output.name]
    options += [f"--constraint={passed_over.name}"]

    @cache
    def has_wheel(name: str) -> bool:
        (folder / "wheel.in").write_text(name, encoding="utf-8")
        arguments = ["--no-deps", *target.options, "--output-file", "wheel.txt", "wheel.in"]
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
        f"After {ROUNDS} rounds, uv still needs the metadata of more source distributions: "
        f"{', '.join(sorted(unbuilt.releases))}. Require exact versions of these packages."
    )


def _add_hashes(text: str, source_hashes: Mapping[str, str]) -> str:
    """Return the lock with the hashes of the sources that uv did not read, as in a folder."""
    for pin, sha256 in source_hashes.items():
        line = re.compile(rf"^{re.escape(pin)}( ;[^\\\n]*)?$", re.MULTILINE)
        text = line.sub(rf"\g<0> \\\n    --hash=sha256:{sha256}", text)
    return text


def find_sources(
    pins: Mapping[str, str], target: Target, folder: Path, environment: Mapping[str, str]
) -> dict[str, Source]:
    """Return the source distributions of exact versions by the name of the package.

    MachineError: the index does not answer, or names no source distribution.
    """
    sources: dict[str, Source] = {}
    unbuilt = Unbuilt({name: {} for name in pins})
    names = ", ".join(f"{name} {version}" for name, version in pins.items())
    for package in find_files(names, pins, target, folder, environment, unbuilt).packages:
        sdist = package.sdist
        if sdist is None or not sdist.url:
            break
        digest = file_digest(sdist.filename, sdist.url, sdist.hashes)
        with suppress(ValueError):  # its name or sha256 is none
            source = Source(sdist.filename, sdist.url, digest, kind=Kind.PYTHON)
            sources[str(package.name)] = source
    if pins.keys() != sources.keys():
        raise MachineError(f"The package index does not name the files of {names}.")
    return sources


def find_files(  # noqa: PLR0913, PLR0917 - of what, for which target, and how
    lock: str,
    pins: Mapping[str, str],
    target: Target,
    folder: Path,
    environment: Mapping[str, str],
    unbuilt: Unbuilt | None = None,
) -> Pylock:
    """Return the files that the index has of exact versions: wheels, else source distributions.

    uv does not look at what the packages require, so it needs no metadata of them. ``lock`` is the
    name of what has these versions, for the error.

    MachineError: the index does not answer, or does not have them.
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
    raise MachineError(f"The files of {lock} cannot be found: {reason}")


def file_digest(name: str, url: str, hashes: Mapping[str, str]) -> str:
    """Return the sha256 of an index's file; a folder as an index has none, so the file is read.

    MachineError: the index tells no sha256, or the folder's file cannot be read or has another
        name. An index of the network can name any file of this machine.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and Path(unquote(parts.path)).name != name:
        raise MachineError(
            f"The package index says that {name} is the file {unquote(parts.path)} of this "
            "machine. Use another index."
        )
    if digest := hashes.get("sha256"):
        return digest
    if parts.scheme != "file":
        raise MachineError(
            f"The package index gives no sha256 of {redact(url)}. Use another index."
        )
    try:
        return file_sha256(Path(unquote(parts.path)))
    except OSError as error:
        raise MachineError(f"{unquote(parts.path)} cannot be read: {error.strerror}.") from None


def explain_refusal(result: Finished, lock: str) -> str:
    """Return why uv found no packages that satisfy, nothing if it did.

    MachineError: the index cannot be reached.
    """
    reason = "" if result.ok else " ".join(result.errors.split()) or result.last()
    if "invalid peer certificate" in reason.lower():  # uv advises an option of its own
        raise MachineError(
            f"The certificate of the Python package index is not trusted, so {lock} cannot be "
            "resolved. If this network replaces certificates, `imgbuild doctor --write` enters its "
            "own in the settings."
        )
    if any(sign in reason.lower() for sign in _UNREACHABLE):
        raise MachineError(f"The Python package index cannot be reached for {lock}: {reason}")
    return reason


def call_uv(  # noqa: PLR0913 - what, where, and without building what
    options: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    unbuilt: Unbuilt | None = None,
    *,
    text: str = "",
    timeout: float | None = None,
) -> Finished:
    """Run ``uv pip compile`` with wheels, except for ``unbuilt``; ``text`` is its standard input.

    InputError: uv's own settings allow it to build packages.
    MachineError: uv gives no answer within ``timeout`` seconds, by default `TIMEOUT_SECONDS`.
    """
    from uv import find_uv_bin  # noqa: PLC0415 - only where it is called

    unbuilt = unbuilt or Unbuilt()
    # A virtual environment that happens to be active must not decide anything.
    env = {name: value for name, value in environment.items() if name != "VIRTUAL_ENV"}
    command = [find_uv_bin(), "pip", "compile", "--only-binary", ":all:", *unbuilt.options]
    # Without it uv would start every Python of the PATH to find one of the target's version.
    command += ["--python", sys.executable]
    command += [*_write_configuration(unbuilt, folder, env), *options]
    timeout = timeout or TIMEOUT_SECONDS
    result = run([*command, "--show-settings"], timeout=timeout, env=env, cwd=folder)
    if result.ok:
        _require_no_builds(result.output)
        result = run([*command, "--quiet"], timeout=timeout, env=env, cwd=folder, text=text)
    if result.code == TIMED_OUT:
        raise MachineError(
            f"uv gave no answer within {timeout} s; is the Python package index reachable? "
            "See `imgbuild doctor`."
        )
    return result


def _write_configuration(
    unbuilt: Unbuilt, folder: Path, environment: Mapping[str, str]
) -> list[str]:
    """Write uv's settings for ``unbuilt`` into ``folder``; return the option that names them.

    uv finds a ``uv.toml`` in its folder, and also reads those of the user and the system, which may
    name the index. It reads one file alone if a variable says so.
    """
    path = folder / "uv.toml"
    # Without this file uv would look in the folders above, one of which may be everybody's: /tmp.
    path.write_text("", encoding="utf-8")
    if not unbuilt.releases:
        return []
    own = environment.get("UV_CONFIG_FILE")
    try:
        known = Path(own).read_text(encoding="utf-8") if own else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"UV_CONFIG_FILE {own}: {error}. Correct or unset it.") from None
    path.write_text(f"{known}\n{unbuilt.toml}", encoding="utf-8")
    alone = own or environment.get("UV_NO_CONFIG")
    return ["--config-file", path.name] if alone else []


def _require_no_builds(settings: str) -> None:
    """Raise InputError unless uv, with these settings, would build no package.

    Settings of uv can add names to ``--no-binary``, which lets uv build these packages.
    """
    match = _BUILD_OPTIONS.search(settings)
    if match is None:
        raise MachineError(
            "The settings of uv cannot be read. If it is not the version that imgbuild requires, "
            "it may build packages on this machine. Install imgbuild again, with its own uv."
        )
    _, _, metadata = settings.partition("dependency_metadata: ")
    known = {*_ANY_VERSION.findall(metadata.partition("output_file: ")[0])}
    named = {*re.findall(r'"([^"]+)"', match[1] or "")} - known
    if named:
        raise InputError(
            f"uv's settings have no-binary for {', '.join(sorted(named))}, so uv would run code of "
            "these packages on this machine. Remove that setting from uv.toml (the user's, the "
            "system's or the one of UV_CONFIG_FILE). imgbuild builds packages in containers only."
        )


def wheel_metadata(path: Path) -> str:
    """Return the METADATA of a wheel, which anybody may have made; ValueError: it has none."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if _METADATA.fullmatch(name)]
        if len(names) != 1:
            raise ValueError("not a wheel with one file METADATA")
        return read_member(archive, names[0], LARGEST_METADATA).decode("utf-8")


def parse_metadata(text: str, name: str, version: str) -> PackageMetadata:
    """Return the metadata of a release, from a file that its package has written.

    ValueError: it is of another release, or has a requirement that an index cannot satisfy.
    """
    try:
        headers = HeaderParser().parsestr(text[:LARGEST_METADATA])
        own_name = canonicalize_name(str(headers.get("Name", "")), validate=True)
        if (own_name, Version(str(headers.get("Version", "")))) != (name, Version(version)):
            raise ValueError(f"it says that it is {own_name} {headers.get('Version')}")
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
    """Return a requirement that anybody may have written.

    ValueError: it is none, is nested too deeply, or has a version with thousands of digits.
    """
    try:
        requirement = Requirement(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    for specifier in requirement.specifier:
        specifier.contains("0")  # only a comparison reads the version
    return requirement


def index_requirement(text: str) -> str:
    """Return a requirement that an index can satisfy, as packaging writes it; else ValueError."""
    try:
        requirement = parse_requirement(text)
    except ValueError as error:
        raise ValueError(f"{text[:200]!r} is no requirement: {error}") from None
    written = str(requirement)
    if requirement.url or not (written.isascii() and written.isprintable()):
        raise ValueError(f"{text[:200]!r} is not a requirement of a package index")
    return written
