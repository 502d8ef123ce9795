"""Read YAML files as validated models; every fault is reported with its ``file:line:column``.

Scalars stay the text that was written: ``2.10`` is the string "2.10", never the number 2.1.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from imgbuild.errors import InputError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml: the same language, ten times slower
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

#: Brackets in brackets; libyaml has no limit of its own but the machine's stack.
DEEPEST = 100

Location = tuple[str | int, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)


class Section(BaseModel):
    """A part of a file as a frozen model; unknown keys are faults."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


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
        line, column = self._line(location)
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
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path.name}:{mark.line + 1}:{mark.column + 1}" if mark else path.name
        raise InputError(f"{where}: not YAML: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path.name}: not YAML: {error}.") from error


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


def load_model(path: Path, model: type[ModelT]) -> ModelT:
    """Return the file at ``path`` as ``model``.

    Raises:
        InputError: every fault of the document, each with its position and what is allowed.

    """
    document = read_document(path)
    parsed, faults = check(document, model)
    if parsed is None or faults:
        raise document.reject(faults)
    return parsed


def check(document: Document, model: type[ModelT]) -> tuple[ModelT | None, list[Fault]]:
    """Return the model (``None`` if it cannot be made) and every fault found on the way."""
    try:
        return model.model_validate(document.value), list(document.faults)
    except ValidationError as error:
        items = [dict(item) for item in error.errors()]
        found = [_explain(document, model, i) for i in items if not _follows(i, items)]
        return None, [*document.faults, *found]


#: What pydantic's error types mean in this project's words.
_WANTED = {
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "dict_type": "a mapping (key: value)",
    "tuple_type": "a list",
    "list_type": "a list",
    "too_short": "a list that is not empty",
    "string_type": "text",
    "bool_parsing": "true or false",
}


def _follows(item: dict[str, Any], items: list[dict[str, Any]]) -> bool:
    """Whether a finding only follows from another: a list is short when its items are wrong."""
    place = item["loc"]
    inside = [other for other in items if other["loc"][: len(place)] == place != other["loc"]]
    return item["type"] == "too_short" and bool(item["input"]) and bool(inside)


def _explain(document: Document, model: type[BaseModel], item: dict[str, Any]) -> Fault:
    """Return pydantic's finding in this project's words."""
    location = _in_document(document, item["loc"])
    name = str(item["loc"][-1]) if item["loc"] else "the document"
    kind = item["type"]
    if kind == "missing":
        return Fault(location, f"missing key {name!r}")
    if kind == "extra_forbidden":
        allowed = ", ".join(_keys_at(model, item["loc"][:-1])) or "none"
        return Fault(location, f"unknown key {name!r}; allowed: {allowed}")
    if kind == "value_error":
        return Fault(location, str(item["ctx"]["error"]))
    if kind in _WANTED:
        return Fault(location, f"{name} must be {_WANTED[kind]}")
    if kind == "literal_error":
        return Fault(
            location, f"{item['input']!r} is not allowed; allowed: {item['ctx']['expected']}"
        )
    got = item["input"]
    types: dict[type, str] = {dict: "a mapping", list: "a list"}
    found = repr(got) if isinstance(got, str) else types.get(type(got), "a value of another type")
    return Fault(location, f"{item['msg'].removesuffix('.')} (found {found})")


def _in_document(document: Document, location: Location) -> Location:
    """Return ``location`` without the parts pydantic adds (union tags, ``[key]``)."""
    result: Location = ()
    for part in location:
        if (*result, part) in document.marks:
            result = (*result, part)
    return result


def _keys_at(model: type[BaseModel], location: Location) -> list[str]:
    """Return the keys that the model at ``location`` knows, by the names used in the file."""
    models = _models_at(model, location)
    return sorted({info.alias or key for m in models for key, info in m.model_fields.items()})


def _models_at(model: type[BaseModel], location: Location) -> list[type[BaseModel]]:
    found: list[Any] = [model]
    for part in location:
        step: list[Any] = []
        for candidate in found:
            step.extend(_step_into(candidate, part))
        found = step or found
    return [m for item in found for m in _models_in(item)]


def _step_into(annotation: Any, part: str | int) -> list[Any]:  # noqa: ANN401
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for key, info in annotation.model_fields.items():
            if part in {key, info.alias}:
                return [info.annotation]
        return []
    args = get_args(annotation)
    if any(_models_in(arg) for arg in args):
        return [arg for arg in args if _models_in(arg)]
    return []


def _models_in(annotation: Any) -> list[type[BaseModel]]:  # noqa: ANN401
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in _models_in(arg)]
