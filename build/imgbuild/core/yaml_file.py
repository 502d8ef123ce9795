"""Read YAML files as validated models, and report every fault with its ``file:line:column``.

Scalars keep their text: ``2.10`` is the string "2.10", never the number 2.1.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from imgbuild.core.errors import InputError
from imgbuild.core.files import read_user_file
from imgbuild.core.text import count_text

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml reads the same language, ten times slower
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

#: The tags of plain values, lists and mappings; `<<` and `=` are ordinary words here.
_TAGS = {*_Loader.yaml_constructors, "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"}
#: Limit for nested lists and mappings; libyaml itself stops only when the stack overflows.
DEEPEST = 100
#: Limits for the bytes of a file and the characters of a value; our matrix uses a tenth of both.
LARGEST, LONGEST = 250_000, 2000
#: Limit for the faults in a message; later faults often follow from earlier ones.
_NAMED = 50

Location = tuple[str | int, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)


class Section(BaseModel):
    """A part of a file as a frozen model; unknown keys are faults.

    If a field has an alias, both code and files must use the alias.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


@dataclass(frozen=True)
class Fault:
    """One fault in a document."""

    location: Location
    message: str


@dataclass
class Document:
    """A parsed file: plain values (dict, list, str) and the position of each value."""

    path: Path
    value: Any = None
    marks: dict[Location, tuple[int, int]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def position(self, location: Location) -> str:
        """Return ``file:line:column`` of ``location``, or of its closest parent with a position."""
        line, column = self._mark(location)
        return f"{self.path.name}:{line}:{column}"

    def reject(self, faults: list[Fault]) -> InputError:
        """Return the error that lists the faults in the order of the file."""
        ordered = sorted(faults, key=lambda fault: self._mark(fault.location))
        lines = [f"{self.position(fault.location)}: {fault.message}" for fault in ordered[:_NAMED]]
        count = count_text(len(faults), "fault")
        if len(faults) > _NAMED:
            count += f", the first {_NAMED} are above"
        return InputError("\n".join([*lines, f"{self.path}: {count}; nothing was done."]))

    def _mark(self, location: Location) -> tuple[int, int]:
        while location and location not in self.marks:
            location = location[:-1]
        return self.marks.get(location, (1, 1))

    def plain(self, node: yaml.Node, location: Location = ()) -> Any:  # noqa: ANN401
        """Return a node as a plain value, and record its position and faults."""
        self.marks.setdefault(location, _mark(node))
        if id(node) in self._seen:
            self._add_fault(location, "aliases (*name) are not allowed; write the value out")
            return None
        self._seen.add(id(node))
        if node.tag not in _TAGS:
            self._add_fault(location, "tags (!name) are not allowed; write the plain value")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, (*location, i)) for i, item in enumerate(node.value)]
        if len(node.value) > LONGEST:
            message = f"over {LONGEST} characters, the limit for keys and values"
            raise self.reject([Fault(location, message)])
        return node.value

    def _read_mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_fault(location, "a key must be a plain word")
                continue
            key, inner = key_node.value, (*location, key_node.value)
            here = (*inner, "<key>")
            self.marks[here] = _mark(key_node)
            if self.plain(key_node, here) is None:
                continue
            if key in result:
                line, column = self.marks[inner]
                self._add_fault(here, f"key {key!r} is already set on line {line}, column {column}")
                continue
            self.marks[inner] = _mark(key_node)
            result[key] = self.plain(value_node, inner)
        return result

    def _add_fault(self, location: Location, message: str) -> None:
        self.faults.append(Fault(location, message))


class _ShallowLoader(_Loader):
    """A loader that refuses deep nesting, because PyYAML's recursion would crash the process."""

    _depth = 0

    def descend_resolver(self, current_node: yaml.Node | None, _: object) -> None:
        """Count the nesting; both loaders call this method for each node."""
        self._depth += 1
        if current_node and self._depth > DEEPEST + 1:
            problem = f"over {DEEPEST} nested lists and mappings; nothing was done"
            raise yaml.MarkedYAMLError(None, None, problem, current_node.start_mark)

    def ascend_resolver(self) -> None:
        self._depth -= 1


def read_document(path: Path) -> Document:
    """Return the YAML document in ``path``.

    InputError: the file cannot be read, is not UTF-8, is not YAML, or exceeds the limits.
    """
    return parse_document(path, read_user_file(path, largest=LARGEST))


def parse_document(path: Path, text: str) -> Document:
    """Return the YAML document in a text of at most `LARGEST` bytes; ``path`` is for messages.

    InputError: the text is not YAML, or exceeds the other limits.
    """
    document = Document(path)
    try:
        node = yaml.compose(text, Loader=_ShallowLoader)
        document.value = {} if node is None else document.plain(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context
        place = f"{path.name}:{mark.line + 1}:{mark.column + 1}" if mark else path.name
        raise InputError(f"{place}: not YAML that imgbuild can read: {what}.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path.name}: not YAML: {error}.") from error
    return document


def _mark(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def load_model(path: Path, model: type[ModelT]) -> ModelT:
    """Return the file at ``path`` as ``model``.

    InputError: the document has faults; the message lists each with its position and what is
    allowed.
    """
    document = read_document(path)
    parsed, faults = check(document, model)
    if parsed is None or faults:
        raise document.reject(faults)
    return parsed


def check(document: Document, model: type[ModelT]) -> tuple[ModelT | None, list[Fault]]:
    """Return the model (``None`` if the document is invalid) and every fault."""
    try:
        return model.model_validate(document.value), list(document.faults)
    except ValidationError as error:
        items = [dict(item) for item in error.errors()]
        faults = [
            _explain(document, model, item) for item in items if not _is_consequence(item, items)
        ]
        return None, [*document.faults, *faults]


#: Messages for pydantic's error types.
_WORDS = {
    "missing": "missing key {name!r}",
    "union_tag_invalid": "{tag!r} is not allowed; allowed: {expected_tags}",
    "literal_error": "{got!r} is not allowed; allowed: {expected}",
    "value_error": "{error}",
    "tuple_type": "{name} must be a list",
    "list_type": "{name} must be a list",
    "too_short": "{name} must be a list that is not empty",
    "string_type": "{name} must be text",
    "bool_parsing": "{name} must be true or false",
    "int_parsing": "{name} must be a whole number",
    "float_parsing": "{name} must be a number",
    "greater_than_equal": "{name} must be at least {ge}",
    "less_than_equal": "{name} must be at most {le}",
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"),
        "{name} must be a mapping (key: value)",
    ),
}


def _is_consequence(item: dict[str, Any], items: list[dict[str, Any]]) -> bool:
    """Return whether an error follows from another, as a list is too short if its items are bad."""
    if item["type"] != "too_short" or not item["input"]:
        return False
    place = item["loc"]
    return any(other["loc"][: len(place)] == place != other["loc"] for other in items)


def _explain(document: Document, model: type[BaseModel], item: dict[str, Any]) -> Fault:
    """Return pydantic's error as a fault in this project's words."""
    kind, path, got = item["type"], item["loc"], item["input"]
    name = "the document"
    if path:
        name = "an entry" if isinstance(path[-1], int) else str(path[-1])
    location: Location = ()
    for part in path:  # skip the parts that pydantic adds: tags of unions, ``[key]``
        if (*location, part) in document.marks:
            location = (*location, part)
    said = _WORDS.get(kind)
    context = item.get("ctx", {})
    if kind == "union_tag_not_found":  # the discriminator is 'source' | 'from'; keep the alias
        message = f"missing key {context['discriminator'].rpartition(' ')[2]}"
    elif kind == "extra_forbidden":
        message = f"unknown key {name!r}; allowed: {_keys_at(model, path[:-1]) or 'none'}"
    elif said:
        message = said.format(name=name, got=got, **context)
    else:
        types: dict[type, str] = {str: repr(got), dict: "a mapping", list: "a list"}
        value = types.get(type(got), "a value of another type")
        said = item["msg"].removesuffix(".").replace("Input should", f"{name} should")
        message = f"{said} (found {value})"
    return Fault(location, message)


def _keys_at(model: type[BaseModel], location: Location) -> str:
    """Return the keys of the model at ``location``, as they are written in the file."""
    models = [model]
    for part in location:  # keys of tables and pydantic's tags of unions do not change the model
        inner: list[type[BaseModel]] = []
        for outer in models:
            for key, info in outer.model_fields.items():
                if part in {key, info.alias}:
                    inner += find_models(info.annotation)
        models = inner or models
    keys: set[str] = set()
    for known in models:
        keys |= {info.alias or key for key, info in known.model_fields.items()}
    return ", ".join(sorted(keys))


def find_models(annotation: Any) -> list[type[BaseModel]]:  # noqa: ANN401
    """Return the models that a type annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    models: list[type[BaseModel]] = []
    for argument in get_args(annotation):
        models += find_models(argument)
    return models
