"""What the templates may name, as plain data: for loops that know nothing of imgbuild."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from imgbuild.dockerfile.variables import variables
from imgbuild.matrix.images import Image

#: Whole tables, which no template reads.
LEFT_OUT = frozenset({"matrix", "row"})


def write_values(images: Iterable[Image], locks: Path, path: Path) -> None:
    """Write the values of every image as JSON."""
    values = {image.name: values_of(image, locks) for image in images}
    path.write_text(json.dumps(values), encoding="utf-8")


def values_of(image: Image, locks: Path) -> dict[str, Any]:
    """Return the templates' variables; ``version_of`` is a mapping in place of a method."""
    found: dict[str, Any] = {k: plain(v) for k, v in variables(image, locks).items()}
    found["image"]["version_of"] = {pin.component: pin.version for pin in image.pins}
    return found


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as dictionaries, lists and words, with its properties as if they were data."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    names = [*_data(value), *_properties(type(value))]
    return {
        n: plain(getattr(value, n)) for n in names if not n.startswith("_") and n not in LEFT_OUT
    }


def _data(value: object) -> list[str]:
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    return [f.name for f in fields(value)] if is_dataclass(value) else []


def _properties(kind: type) -> list[str]:
    found = [c for c in kind.__mro__ if c.__module__.startswith("imgbuild")]
    return [
        n for c in found for n, v in vars(c).items() if isinstance(v, property | cached_property)
    ]
