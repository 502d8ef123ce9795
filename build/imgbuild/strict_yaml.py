"""YAML files as validated models, every fault with its ``file:line:column``, all at once."""

from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from imgbuild.yaml_document import Document, Fault, Location, read_document

ModelT = TypeVar("ModelT", bound=BaseModel)


def validate(document: Document, model: type[ModelT]) -> ModelT:
    """Return ``document`` as ``model``.

    Raises:
        InputError: every fault of the document, each with its position and what is allowed.

    """
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


def load_model(path: Path, model: type[ModelT]) -> ModelT:
    """Return the file at ``path`` as ``model``; see :func:`validate` for the errors."""
    return validate(read_document(path), model)


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
    shown = f" (found {got!r})" if isinstance(got, str) else f" (found a {_yaml_type(got)})"
    return Fault(location, item["msg"].removesuffix(".") + shown)


def _yaml_type(value: object) -> str:
    names: dict[type, str] = {dict: "mapping", list: "list"}
    return names.get(type(value), "value of another type")


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
