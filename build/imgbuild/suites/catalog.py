"""List the suites of the checkout, the images they apply to, and the digests of their code."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from imgbuild.core.errors import InputError
from imgbuild.core.files import sha256
from imgbuild.matrix.model import Variant

PREFIX = "test_"
#: The prefix of suites that only apply to images with CUDA.
GPU_PREFIX = "gpu_"
#: The first line of a suite's docstring: "Suite `pins`: every pin is right."
_PROVES = re.compile(r'"""(?:Suite [^:\n]*: )?([^"\n]*)')
#: The constant that declares a suite's additional needs. It is parsed, not evaluated.
_NEEDS = re.compile(r"""^NEEDS\b[^=\n]*=(?:\s*(["'])(?P<text>[^"'\n]*)\1\s*$)?""", re.MULTILINE)
#: Constants that limit a suite to images with MPI, to extended images, or to newer TensorFlow.
_WITH_MPI = re.compile(r"^WITH_MPI = True$", re.MULTILINE)
_OF_EXTENSIONS = re.compile(r"^OF_EXTENSIONS = True$", re.MULTILINE)
_SINCE = re.compile(r'^SINCE = "([\d.]+)"$', re.MULTILINE)
#: The constant that declares the approximate seconds of a long suite.
_LASTS = re.compile(r"^LASTS = (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Suite:
    """One suite, parsed from its file ``test_NAME.py`` without running it.

    - ``proves``: the first line of its docstring
    - ``needs``: its needs in addition to the image and GPUs, or None. A suite with needs only runs
      on demand, and images get their tags without it.
    - ``code``: the sha256 of its file and of the files that suites share
    - ``since``: the oldest TensorFlow that it applies to
    - ``with_mpi``: it applies only to images with MPI
    - ``of_extensions``: it applies only to images with added packages
    """

    name: str
    proves: str
    needs: str | None
    code: str
    since: str = "0"
    with_mpi: bool = False
    of_extensions: bool = False

    @property
    def on_demand(self) -> bool:
        return self.needs is not None

    @property
    def variants(self) -> tuple[Variant, ...]:
        return ("gpu",) if self.name.startswith(GPU_PREFIX) else ("cpu", "gpu")

    def is_for(self, expected: Mapping[str, Any]) -> bool:
        if expected["variant"] not in self.variants:
            return False
        if self.with_mpi and expected["mpi_flavour"] is None:
            return False
        if self.of_extensions and not expected.get("requested"):
            return False
        return Version(expected["tensorflow"]) >= Version(self.since)

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": self.name,
            "proves": self.proves,
            "variants": list(self.variants),
            "needs": self.needs,
            "on_demand": self.on_demand,
        }


def read_suites(folder: Path) -> tuple[Suite, ...]:
    """Return the suites in a folder, sorted by name; InputError if a ``NEEDS`` is not a string."""
    files = sorted(folder.glob(f"{PREFIX}*.py"))
    # Suites may use all other files except documentation, bytecode and hidden files of tools.
    others = {path for path in folder.rglob("*") if path.suffix not in {".md", ".pyc"}}
    others.difference_update(files)
    shared = []
    for path in others:
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            content = _sha256(path.read_bytes())
            shared.append(f"{name}\0{content}")
    shared.sort()
    digest = _sha256("\n".join(shared).encode())
    return tuple(_read_suite(file, digest) for file in files)


def _read_suite(file: Path, shared: str) -> Suite:
    data = file.read_bytes()
    text = data.decode("utf-8")
    proves = _PROVES.match(text)
    needs = _NEEDS.search(text)
    since = _SINCE.search(text)
    if needs and needs["text"] is None:
        line = text.count("\n", 0, needs.start()) + 1
        raise InputError(f"{file}:{line}: NEEDS must be a string in quotes.")
    code = f"{shared}\0{_sha256(data)}"
    return Suite(
        name=file.stem.removeprefix(PREFIX),
        proves=proves[1] if proves else "",
        needs=needs["text"] if needs else None,
        code=_sha256(code.encode()),
        since=since[1] if since else "0",
        with_mpi=_WITH_MPI.search(text) is not None,
        of_extensions=_OF_EXTENSIONS.search(text) is not None,
    )


def select_required(suites: Iterable[Suite], expected: Mapping[str, Any]) -> tuple[Suite, ...]:
    """Return the suites that an image with these expected facts must pass."""
    return tuple(suite for suite in suites if suite.is_for(expected) and not suite.on_demand)


def choose_suites(
    folder: Path, names: tuple[str, ...], expected: Mapping[str, Any]
) -> tuple[Suite, ...]:
    """Return the named suites of an image; without names, all that do not run on demand.

    InputError: a name is not a suite of the image; the message lists the suites.
    """
    suites = read_suites(folder)
    known = [suite for suite in suites if suite.is_for(expected)]
    unknown = {*names} - {suite.name for suite in known}
    if unknown:
        of_others = [suite for suite in suites if suite.name in unknown]
        which = f"No suite of {expected['name']} is called" if of_others else "No suite"
        there = ", ".join(suite.name for suite in known)
        why = ""
        if any(expected["variant"] not in suite.variants for suite in of_others):
            other = "GPUs" if expected["variant"] == "cpu" else "CPUs"
            why = f", because it is not an image for {other}"
        raise InputError(f"{which} {', '.join(sorted(unknown))}{why}. Available suites: {there}.")
    if names:
        return tuple(suite for suite in known if suite.name in names)
    return tuple(suite for suite in known if not suite.on_demand)


def group_suites(folder: Path, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the groups of suites that share a process: all short ones, then each long one."""
    seconds = {}
    for name in names:
        text = (folder / f"{PREFIX}{name}.py").read_text("utf-8")
        if match := _LASTS.search(text):
            seconds[name] = int(match[1])
    groups = []
    short = tuple(name for name in names if name not in seconds)
    if short:
        groups.append(short)
    long = sorted(seconds, key=lambda name: seconds[name], reverse=True)
    return [*groups, *((name,) for name in long)]


def suite_keys(suites: Iterable[Suite], expected: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys under which verdicts are stored, by suite.

    Besides the image, a verdict depends on the suite's code, the files that suites share and the
    expected facts. A key is the digest of these.
    """
    text = json.dumps(expected, sort_keys=True)
    keys = {}
    for suite in suites:
        whole = f"{suite.code}\0{text}"
        keys[suite.name] = _sha256(whole.encode())
    return keys


def code_digest(folder: Path) -> str:
    codes = [suite.code for suite in read_suites(folder)]
    return _sha256("\n".join(codes).encode())


def _sha256(data: bytes) -> str:
    return f"sha256:{sha256(data)}"
