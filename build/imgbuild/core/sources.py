"""The files that a build downloads, with their sha256."""

from enum import StrEnum
from typing import Annotated

import pydantic.dataclasses

from imgbuild.core.scalars import Sha256

#: A file name in one folder. It can also be a name as apt (``1%3a2.0~rc1``) and the Python index
#: use them.
StoredName = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+%~!:@-]*$")]


class Kind(StrEnum):
    DOWNLOAD = "download"
    CONDA = "conda-package"
    PYTHON = "python-distribution"
    APT_LIST = "apt-list"
    APT_PACKAGE = "apt-package"
    APT_MIRRORS = "apt-mirrors"


@pydantic.dataclasses.dataclass(frozen=True)
class Source:
    """One file; ``size`` is in bytes, if it is known beforehand.

    A file without ``url`` was made on the machine that ran `imgbuild build --fetch`.

    ValueError: the name is a path, or the sha256 is invalid.
    """

    name: StoredName
    url: str
    sha256: Sha256
    size: int | None = None
    kind: Kind = Kind.DOWNLOAD
