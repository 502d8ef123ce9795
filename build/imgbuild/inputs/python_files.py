"""The Python distributions of an image: the one file of each that uv would install there."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from imgbuild.dockerfile.lockfile import Lock, read_lock
from imgbuild.dockerfile.resolve import PLATFORM, call_uv, index_environment
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import work_folder
from imgbuild.inputs.fetched import Item, Kind
from imgbuild.matrix.images import Image
from imgbuild.settings import Sites


def python_items(image: Image, locks: Path, sites: Sites) -> tuple[Item, ...]:
    """Return the files of the image's locks, and Horovod's source distribution.

    uv finds them, through its own configuration of the index or the mirror ``python-index``.

    Raises:
        CheckFailedError: the index has no file of a package, or another than the lock's.
        MachineError: the index cannot be reached.

    """
    python = image.python_minor
    horovod = image.version_of("horovod")
    source = Lock("", {"horovod": horovod}, {"horovod": (image.horovod.sha256,)})
    found = [
        *(
            item
            for name in image.lock_names
            for item in _files(read_lock(locks / name), python, sites, name)
        ),
        *_files(source, python, sites, "matrix.yaml", binary=False),
    ]
    return tuple(dict.fromkeys(found))


def _files(
    lock: Lock, python: str, sites: Sites, name: str, *, binary: bool = True
) -> Iterator[Item]:
    for package in _ask(lock, python, sites, name)["packages"]:
        distribution = canonicalize_name(package["name"])
        item = _choose(package, python, binary=binary)
        if item.sha256 not in lock.hashes.get(distribution, ()):
            raise CheckFailedError(
                f"The Python package index has {item.name} with sha256 {item.sha256}, which is not "
                f"in {name}. Stop and find out which of the two is right."
            )
        yield item


def _choose(package: Mapping[str, Any], python: str, *, binary: bool) -> Item:
    """Return the best wheel for this Python, else the source distribution."""
    order = {tag: place for place, tag in enumerate(wheel_tags(python))}
    wheels = [_item(file) for file in package.get("wheels", ())] if binary else []
    fitting = [(_place(wheel.name, order), wheel) for wheel in wheels]
    best = min(fitting, key=lambda pair: pair[0], default=(len(order), None))[1]
    if best is None and "sdist" not in package:
        raise CheckFailedError(
            f"The Python package index has no file of {package['name']} {package['version']} for "
            f"Python {python}."
        )
    return best or _item(package["sdist"])


def _place(name: str, order: Mapping[Tag, int]) -> int:
    return min(order.get(tag, len(order)) for tag in parse_wheel_filename(name)[3])


def wheel_tags(python: str) -> list[Tag]:
    """Return the tags of wheels for this Python on :data:`PLATFORM`, best first.

    glibc 2.17 to 2.5, the newer one first, with their old names (PEP 600).
    """
    version = tuple(int(part) for part in python.split("."))
    cpython = f"cp{python.replace('.', '')}"
    old = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    platforms = [
        f"{name}_x86_64"
        for minor in range(17, 4, -1)
        for name in (f"manylinux_2_{minor}", old.get(minor))
        if name
    ]
    abi = f"{cpython}m" if version < (3, 8) else cpython
    return [
        *cpython_tags(version, [abi], [*platforms, "linux_x86_64"]),
        *compatible_tags(version, cpython, [*platforms, "linux_x86_64"]),
    ]


def _item(file: Mapping[str, Any]) -> Item:
    path = urlsplit(file["url"]).path
    name = unquote(path.rsplit("/", 1)[1])
    return Item(Kind.PYTHON, name, file["url"], file["hashes"]["sha256"], file.get("size"))


def _ask(lock: Lock, python: str, sites: Sites, name: str) -> dict[str, Any]:
    """Return what uv finds for exactly these versions (PEP 751)."""
    with work_folder("python-files") as folder:
        pins = "".join(f"{package}=={version}\n" for package, version in lock.versions.items())
        (folder / "requirements.in").write_text(pins, encoding="utf-8")
        target = ["--python-version", python, "--python-platform", PLATFORM]
        output = ["--format", "pylock.toml", "--output-file", "pylock.toml"]
        command = ["--quiet", "--no-deps", *target, *output, "requirements.in"]
        result = call_uv(command, folder, index_environment(sites))
        if not result.ok:
            reason = " ".join(result.errors.split())
            raise MachineError(f"The files of {name} cannot be found: {reason}")
        return tomllib.loads((folder / "pylock.toml").read_text(encoding="utf-8"))
