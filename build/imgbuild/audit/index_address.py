"""Which Python package index the tools of this machine use: by variable, by file, by default."""

import importlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.http import shown
from imgbuild.settings import Settings

_UV_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
_PIP_KEYS = (":env:.index-url", "global.index-url", "install.index-url")


@dataclass(frozen=True)
class IndexAddress:
    """An index's root in the form of PEP 503, and what names it."""

    url: str
    named_by: str

    def project(self, name: str) -> str:
        """Return the address of a project's page; ``name`` is canonical."""
        return f"{self.url}/{name}/"


def find_index(environment: Mapping[str, str] = os.environ) -> IndexAddress:
    """Return the index that ``imgbuild lock`` and pip take packages from, uv's settings first.

    Raises:
        InputError: it is named, but is no http address; or none is named and pip, whose default it
            would be, is not there.

    """
    url, named_by = next(_named(environment), ("", ""))
    if url.startswith(("http://", "https://")):
        return IndexAddress(url.rstrip("/"), named_by)
    found = f"{named_by} names {shown(url)!r}" if url else "No index is named"
    raise InputError(f"{found}; audit needs one at http:// or https://. Set UV_DEFAULT_INDEX.")


def mirrored_index(settings: Settings) -> IndexAddress | None:
    """Return the index that the settings, or ``--mirror``, put in place of any other."""
    mirror = settings.mirrors.get("python-index")
    return IndexAddress(mirror.url.rstrip("/"), "the mirror python-index") if mirror else None


def _named(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((environment[name], name) for name in _UV_VARIABLES if environment.get(name))
    for path in _uv_files(environment):
        yield from ((url, str(path)) for url in _in_uv_file(path))
    if environment.get("PIP_INDEX_URL"):
        yield environment["PIP_INDEX_URL"], "PIP_INDEX_URL"
    yield from _pip()


def _uv_files(environment: Mapping[str, str]) -> list[Path]:
    if environment.get("UV_NO_CONFIG"):
        return []
    if environment.get("UV_CONFIG_FILE"):
        return [Path(environment["UV_CONFIG_FILE"])]
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/")) / ".config"
    return [Path(home) / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]


def _in_uv_file(path: Path) -> Iterator[str]:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    indexes = settings.get("index", [])
    listed = [index for index in indexes if isinstance(index, dict) and index.get("default")]
    pip = settings.get("pip")
    values = [*(index.get("url") for index in listed), settings.get("index-url")]
    values.append(pip.get("index-url") if isinstance(pip, dict) else None)
    yield from (value for value in values if isinstance(value, str) and value)


def _pip() -> Iterator[tuple[str, str]]:
    """Yield pip's configured index and its built-in one, which is uv's too."""
    try:
        configuration = importlib.import_module("pip._internal.configuration")
        default: str = importlib.import_module("pip._internal.models.index").PyPI.simple_url
    except (ImportError, AttributeError):
        return
    yield from ((url, "pip's configuration") for url in _pip_values(configuration))
    yield default, "pip's default"


def _pip_values(configuration: Any) -> Iterator[str]:  # noqa: ANN401 - pip's module
    loaded = configuration.Configuration(isolated=False)
    loaded.load()
    values = dict(loaded.items())
    yield from (str(values[key]) for key in _PIP_KEYS if values.get(key))
