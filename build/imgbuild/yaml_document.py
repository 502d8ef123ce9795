"""YAML as plain values that know where they were written.

Scalars stay the text that was written: ``2.10`` is the string "2.10", never the number 2.1.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from imgbuild.errors import InputError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml: the same language, ten times slower
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

#: Brackets in brackets; libyaml has no limit of its own but the machine's stack.
DEEPEST = 100

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a document."""

    location: Location
    message: str


@dataclass
class Document:
    """A parsed file: plain values (dict, list, str) and where each of them was written."""

    path: Path
    value: Any = None
    marks: dict[Location, tuple[int, int]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def position(self, location: Location) -> str:
        """Return ``file:line:column`` of ``location``, or of what encloses it most closely."""
        known = tuple(location)
        while known and known not in self.marks:
            known = known[:-1]
        line, column = self.marks.get(known, (1, 1))
        return f"{self.path.name}:{line}:{column}"

    def reject(self, faults: list[Fault]) -> InputError:
        """Return the error that names every fault, in the order of the file."""
        ordered = sorted(faults, key=lambda fault: self._line(fault.location))
        lines = [f"{self.position(fault.location)}: {fault.message}" for fault in ordered]
        count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
        return InputError("\n".join([*lines, f"{self.path}: {count}; nothing was done."]))

    def _line(self, location: Location) -> tuple[int, int]:
        known = tuple(location)
        while known and known not in self.marks:
            known = known[:-1]
        return self.marks.get(known, (1, 1))


def _depth(text: str) -> int:
    """Return how deep brackets lie in brackets, whether in quotes or not."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def read_document(path: Path) -> Document:
    """Return the YAML document in ``path``.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or is not YAML.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}.") from error
    if _depth(text) > DEEPEST:
        raise InputError(f"{path} is nested too deeply (more than {DEEPEST} brackets in brackets).")
    document = Document(path)
    try:
        document.value = _Builder(document).build(_compose(path, text))
    except RecursionError as error:
        raise InputError(f"{path.name}: nested too deeply to be what it should be.") from error
    return document


def _compose(path: Path, text: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path.name}:{mark.line + 1}:{mark.column + 1}" if mark else path.name
        raise InputError(f"{where}: not YAML: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path.name}: not YAML: {error}.") from error
    return node


class _Builder:
    """Turns YAML nodes into plain values and notes where each stood."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._seen: set[int] = set()

    def build(self, node: yaml.Node | None, location: Location = ()) -> Any:  # noqa: ANN401
        if node is None:
            return {}
        self._document.marks.setdefault(location, _mark(node))
        if id(node) in self._seen:
            self._fault(location, "aliases (*name) are not allowed; write the value out")
            return None
        self._seen.add(id(node))
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
            self._fault(location, "tags (!name) are not allowed; write the plain value")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*location, i)) for i, item in enumerate(node.value)]
        return node.value

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                self._fault(location, "a key must be a plain word")
                continue
            inner = (*location, key)
            if key in result:
                line, column = self._document.marks[inner]
                self._document.marks[*inner, "<duplicate>"] = _mark(key_node)
                message = f"key {key!r} is already set on line {line}, column {column}"
                self._fault((*inner, "<duplicate>"), message)
                continue
            self._document.marks[inner] = _mark(key_node)
            result[key] = self.build(value_node, inner)
        return result

    def _fault(self, location: Location, message: str) -> None:
        self._document.faults.append(Fault(location, message))


def _mark(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
