"""Where a cache is, as ``--cache-from`` and ``--cache-to`` name it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from imgbuild.errors import InputError
from imgbuild.scalars import CacheRepository

_PATH_STARTS = ("/", "./", "../", "~")
_FORMS = "a folder (/…, ./…, ../…, ~/…) or HOST[:PORT]/REPOSITORY"
_REPOSITORY: TypeAdapter[str] = TypeAdapter(CacheRepository)


@dataclass(frozen=True)
class FolderPlace:
    """A folder of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class RegistryPlace:
    """A repository of a registry, ``HOST[:PORT]/REPOSITORY``."""

    repository: str

    def __str__(self) -> str:
        return self.repository


Place = FolderPlace | RegistryPlace


def cache_place(option: str, value: str) -> Place:
    """Return the place that ``value`` names, in the short form or in BuildKit's.

    ``option`` is ``--cache-from`` or ``--cache-to``: BuildKit calls the folder ``src`` in the
    first, ``dest`` in the second.

    Raises:
        InputError: it is neither. A value that may hold a login is not quoted.

    """
    if re.match(r"[a-z_-]+=", value):
        return _spelled_out(option, value)
    return _folder(option, value) if value.startswith(_PATH_STARTS) else _registry(option, value)


def _spelled_out(option: str, value: str) -> Place:
    pairs = dict(part.partition("=")[::2] for part in value.split(","))
    folder_key = "src" if option == "--cache-from" else "dest"
    keys = {"local": folder_key, "registry": "ref"}
    key = keys.get(pairs.get("type", ""))
    if key is None or pairs.keys() != {"type", key} or not pairs[key]:
        raise InputError(_unknown(option, folder_key, pairs))
    return _folder(option, pairs[key]) if key == folder_key else _registry(option, pairs[key])


def _unknown(option: str, folder_key: str, pairs: Mapping[str, str]) -> str:
    given = ", ".join(key for key in pairs if re.fullmatch("[a-z_-]+", key))
    return (
        f"{option}: of BuildKit's spelling there are type=local,{folder_key}=DIR and "
        f"type=registry,ref=HOST[:PORT]/REPOSITORY (given: {given}). It may also be {_FORMS}."
    )


def _folder(option: str, value: str) -> FolderPlace:
    try:
        path = Path(value).expanduser().absolute()
    except RuntimeError:
        raise InputError(f"{option} {value}: this user has no home folder.") from None
    if not value.isprintable():
        raise InputError(f"{option}: the path holds characters that cannot be printed.")
    if path.exists() and not path.is_dir():
        raise InputError(f"{option} {value}: that is no folder.")
    return FolderPlace(path)


def _registry(option: str, value: str) -> RegistryPlace:
    if "@" in value:  # never quoted: it may be a secret
        raise InputError(
            f"{option}: a login or a digest in it, which is not wanted. Give HOST[:PORT]/REPOSITORY"
            " and log in with `docker login HOST`."
        )
    try:
        return RegistryPlace(_REPOSITORY.validate_python(value))
    except ValidationError:
        raise InputError(
            f"{option} {value!r} is neither {_FORMS}. The repository has no tag, since imgbuild "
            "writes several; one of Docker Hub's is docker.io/USER/REPOSITORY."
        ) from None
