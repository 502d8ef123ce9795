"""Reject system packages for another Python than the image's."""

import re
from collections.abc import Iterable

from imgbuild.core.errors import InputError
from imgbuild.extend.base_image import BaseImage
from imgbuild.locks.requirement_rules import MODULES

#: Packages in Debian and Ubuntu for the system's Python.
_OF_PYTHON = re.compile(r"(?:lib)?python[0-9.]*(?:-(?P<module>[^=]+))?|idle[0-9.]*(?:-[^=]+)?")
#: Parts of Debian's Python itself; images that use Debian's Python can have them.
_PARTS = {"tk", "gdbm", "venv", "dev", "distutils", "lib2to3", "minimal", "stdlib"}
#: Names of packages in the index by module, if the archive uses another name.
_INDEX_NAMES = {module.lower(): name.lower() for module, name in MODULES.items()}
_IN_THE_IMAGE = {"pip", "setuptools", "wheel", "numpy", "six", "h5py", "protobuf"}


def check_apt(names: Iterable[str], base: BaseImage) -> None:
    """Raise InputError for packages of the system's Python if the image uses another Python.

    Images outside the matrix are not checked, because they may use the system's Python.
    """
    if base.image is None:
        return
    of_system = base.image.python.origin == "apt"
    ways = []
    for name in names:
        match = _OF_PYTHON.fullmatch(name.partition("=")[0])
        module = (match["module"] or "") if match else ""
        if match and not (of_system and (not module or module in _PARTS)):
            ways.append(f"{name}: {_way(module)}")
    if ways:
        raise InputError(
            "--apt: the system's packages for Python work with the system's Python, not with the "
            f"Python {base.python} of {base.name} in /opt/python. {'; '.join(ways)}."
        )


def _way(module: str) -> str:
    if module == "tk":
        return "these images have no tkinter (docs/contents.md)"
    if module in _IN_THE_IMAGE:
        return "the image has it"
    if module in {"", *_PARTS} or module.endswith(("-dev", "-minimal", "-stdlib")):
        return "the image has its own Python, including the headers"
    return f"use --pip {_INDEX_NAMES.get(module, module)}"
