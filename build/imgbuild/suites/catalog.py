"""List the suites of the checkout: for which images each is, and the digest of its code."""

import ast
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.matrix.model import Variant

PREFIX = "test_"
#: What the suites begin with that only images with CUDA have.
GPU_PREFIX = "gpu_"
#: The module constant by which a suite says what it needs beside the image: it runs on demand.
NEEDS = "NEEDS"
_QUOTES = b'"""'
#: Python 3.11 counts how deep a tree is in one place for all threads: one that parses while another
#: does can end with "AST constructor recursion depth mismatch". Source: cpython issue 106905.
_PARSING = threading.Lock()


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


def list_suites(folder: Path, variant: Variant) -> tuple[str, ...]:
    """Return the names of the suites that every image of one variant must pass."""
    return tuple(suite.name for suite in required(read_suites(folder), variant))


def required(suites: Iterable[Suite], variant: Variant) -> tuple[Suite, ...]:
    """Return the suites that every image of one variant must pass."""
    return tuple(s for s in suites if variant in s.variants and not s.on_demand)


def choose_suites(folder: Path, wanted: tuple[str, ...], variant: Variant) -> tuple[Suite, ...]:
    """Return the wanted suites of one variant's images; all that are not on demand if none is.

    Raises:
        InputError: a name is no suite of such images; those that are are listed.

    """
    suites = read_suites(folder)
    known = [suite for suite in suites if variant in suite.variants]
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
    text = file.read_bytes()
    proves, needs = _said(text, file)
    name = file.stem.removeprefix(PREFIX)
    return Suite(name, proves, needs, _sha256(f"{shared}\0{_sha256(text)}".encode()))


def _said(text: bytes, file: Path) -> tuple[str, str | None]:
    """Return the docstring's first line without the suite's name, and ``NEEDS``."""
    # A suite's code is most of it, and is parsed only where it may say what the suite needs.
    heading = text[: text.find(_QUOTES, len(_QUOTES)) + len(_QUOTES)]
    whole = NEEDS.encode() in text or not text.startswith(_QUOTES)
    try:
        with _PARSING:
            module = ast.parse(text if whole else heading)
    except SyntaxError:  # pytest says it when the suite is run
        return "", None
    proves = (ast.get_docstring(module) or "").partition("\n")[0]
    return proves.partition(": ")[2] or proves, _needs(module, file)


def _needs(module: ast.Module, file: Path) -> str | None:
    for value in _values_of(NEEDS, module):
        if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
            raise InputError(f"{file}:{value.lineno}: {NEEDS} must be a text in quotes.")
        return value.value
    return None


def _values_of(name: str, module: ast.Module) -> Iterator[ast.expr]:
    for statement in module.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(statement, "value", None)
            if isinstance(value, ast.expr):
                yield value


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
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
