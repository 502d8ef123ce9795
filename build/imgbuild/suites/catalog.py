"""List the suites of the checkout: for which images each is, and the digest of its code."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.files import sha256
from imgbuild.matrix.model import Variant

PREFIX = "test_"
#: What the suites begin with that only images with CUDA have.
GPU_PREFIX = "gpu_"
#: The module constant by which a suite says what it needs beside the image: it runs on demand.
_NEEDS = re.compile(r"^NEEDS\b[^=\n]*=(?P<value>.*)$", re.MULTILINE)
_QUOTED = re.compile(r"""(?P<quote>["'])(?P<text>[^"']*)(?P=quote)""")


@dataclass(frozen=True)
class Suite:
    """One file ``test_NAME.py``, as far as it can be known without running it.

    ``proves`` is the first line of its docstring. ``needs`` is what it needs beside the image and
    the machine's GPUs, or ``None``: such a suite runs only where it is named, and no image must
    have passed it to get its name. ``code`` is the sha256 of its file and of all that suites share.
    """

    name: str
    proves: str
    needs: str | None
    code: str

    @property
    def on_demand(self) -> bool:
        """Whether it runs only where it is named."""
        return self.needs is not None

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants whose images have it."""
        return ("gpu",) if self.name.startswith(GPU_PREFIX) else ("cpu", "gpu")

    def as_json(self) -> dict[str, Any]:
        """Return what ``test --list-suites --json`` prints."""
        return {
            "suite": self.name,
            "proves": self.proves,
            "variants": list(self.variants),
            "needs": self.needs,
            "on_demand": self.on_demand,
        }


def read_suites(folder: Path) -> tuple[Suite, ...]:
    """Return all suites of ``folder`` in the order of their names.

    Raises:
        InputError: a suite's ``NEEDS`` is not a plain text.

    """
    shared = _digest(_shared_files(folder), folder)
    return tuple(_suite(file, shared) for file in sorted(folder.glob(f"{PREFIX}*.py")))


def required(suites: Iterable[Suite], variant: Variant) -> tuple[Suite, ...]:
    """Return the suites that every image of one variant must pass."""
    return tuple(s for s in suites if variant in s.variants and not s.on_demand)


def choose_suites(
    folder: Path, wanted: tuple[str, ...], variant: Variant | None
) -> tuple[Suite, ...]:
    """Return the wanted suites of one variant's images; all that are not on demand if none is.

    ``variant`` is None as long as nobody knows it: suites of all variants are there to choose from.

    Raises:
        InputError: a name is no suite of such images; those that are are listed.

    """
    suites = read_suites(folder)
    known = [suite for suite in suites if variant in {None, *suite.variants}]
    names = [suite.name for suite in known]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        only = any(suite.name in unknown for suite in suites)
        which = f"No suite of {variant} images is called" if only else "No suite"
        raise InputError(f"{which} {', '.join(unknown)}. There are: {', '.join(names)}.")
    return tuple(s for s in known if s.name in wanted or not (wanted or s.on_demand))


def suite_keys(suites: Iterable[Suite], expected: Mapping[str, Any]) -> dict[str, str]:
    """Return, by suite, the digest of what a verdict depends on beside the image.

    That is the suite's code, what all suites share, and what is expected of the image.
    """
    text = json.dumps(expected, sort_keys=True)
    return {suite.name: _sha256(f"{suite.code}\0{text}".encode()) for suite in suites}


def code_digest(folder: Path) -> str:
    """Return the sha256 of the code of all suites."""
    return _digest([*_shared_files(folder), *folder.glob(f"{PREFIX}*.py")], folder)


def _suite(file: Path, shared: str) -> Suite:
    data = file.read_bytes()
    text = data.decode("utf-8")
    proves = text.partition("\n")[0].strip('"') if text.startswith('"""') else ""
    name = file.stem.removeprefix(PREFIX)
    code = _sha256(f"{shared}\0{_sha256(data)}".encode())
    return Suite(name, proves.partition(": ")[2] or proves, _needs(text, file), code)


def _needs(text: str, file: Path) -> str | None:
    """Return the value of ``NEEDS``, which is read and not computed."""
    found = _NEEDS.search(text)
    if found is None:
        return None
    quoted = _QUOTED.fullmatch(found["value"].strip())
    if quoted is None:
        line = text.count("\n", 0, found.start()) + 1
        raise InputError(f"{file}:{line}: NEEDS must be a text in quotes.")
    return quoted["text"]


def _shared_files(folder: Path) -> list[Path]:
    """Return what any suite may use: all but the suites, their documentation, and leftovers."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not (path.parent == folder and path.match(f"{PREFIX}*.py"))
        and path.suffix not in {".md", ".pyc"}
    ]


def _digest(files: list[Path], folder: Path) -> str:
    lines = sorted(f"{path.relative_to(folder)}\0{_sha256(path.read_bytes())}" for path in files)
    return _sha256("\n".join(lines).encode())


def _sha256(data: bytes) -> str:
    return f"sha256:{sha256(data)}"
