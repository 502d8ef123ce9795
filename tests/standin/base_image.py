"""Base images under Ubuntu's name: Debian 12's, with another os-release and other apt sources.

Where both archives have a package, the stand-in's wins.
"""

import gzip
import io
import json
import tarfile
from pathlib import Path

from imgbuild.core.settings import Settings
from imgbuild.inputs.base import Base
from imgbuild.inputs.bootstrap import bootstrap_base
from imgbuild.inputs.oci_layout import read_layout, write_layout
from imgbuild.matrix.images import all_images
from imgbuild.matrix.model import OperatingSystem
from standin.apt_repository import SigningKey
from standin.context import Context
from standin.deb import TIME

KEYRING = "usr/share/keyrings/imgbuild-standin.gpg"
#: The folder of Ubuntu's archive on its site, and the components that the stand-in has.
ARCHIVE = "http://archive.ubuntu.com/ubuntu"
COMPONENTS = ("main", "universe")
_CODE_NAMES = {"xenial": "Xenial Xerus", "bionic": "Bionic Beaver"}
_DEBIAN = "debian-12"


def debian_base(context: Context) -> Base:
    """Return Debian's base image, which the stand-ins are made from and made in."""
    images = all_images(context.matrix)
    image = next(image for image in images if image.os_name == _DEBIAN)
    return bootstrap_base(image, Settings())


def ubuntu_base(context: Context, os_name: str, key: SigningKey) -> Base:
    system = context.matrix.operating_systems[os_name]
    debian = debian_base(context)
    made_from = [debian.digest, key.fingerprint, system.version, system.suite]

    def make(folder: Path) -> None:
        rootfs = folder / "rootfs.tar"
        assert debian.layout
        _write_rootfs(debian.layout, rootfs, _changes(system, key))
        write_layout(folder, rootfs, name=f"{os_name}-standin", epoch=TIME)
        rootfs.unlink()

    path = context.stored(f"base-{os_name}", made_from, ("base_image.py",), make)
    return read_layout(path, verify_layer=False)


def _changes(system: OperatingSystem, key: SigningKey) -> dict[str, bytes]:
    """Return the files that differ from Debian's, by path."""
    trusted = f"[signed-by=/{KEYRING}]"
    lines = f"deb {trusted} {ARCHIVE} {system.suite} {' '.join(COMPONENTS)}\n"
    pin = "Package: *\nPin: release l=Ubuntu stand-in\nPin-Priority: 990\n"
    return {
        "usr/lib/os-release": _os_release(system).encode(),
        "etc/apt/sources.list": lines.encode(),
        "etc/apt/preferences.d/standin": pin.encode(),
        KEYRING: key.keyring.read_bytes(),
    }


def _os_release(system: OperatingSystem) -> str:
    long_version = f"{system.version} LTS ({_CODE_NAMES.get(system.suite, system.suite)})"
    fields = {
        "NAME": "Ubuntu",
        "VERSION": long_version,
        "ID": "ubuntu",
        "ID_LIKE": "debian",
        "PRETTY_NAME": f"Ubuntu {system.version} LTS (stand-in on Debian 12, for tests only)",
        "VERSION_ID": system.version,
        "VERSION_CODENAME": system.suite,
        "UBUNTU_CODENAME": system.suite,
    }
    return "".join(f'{name}="{value}"\n' for name, value in fields.items())


def _write_rootfs(debian: Path, target: Path, changes: dict[str, bytes]) -> None:
    """Copy a layer with changes, each path once; Debian's sources get a file of their own.

    Engines refuse a layer that has a path twice: duplicates of file paths not supported.
    """
    manifest = _blob(debian, json.loads((debian / "index.json").read_bytes())["manifests"][0])
    layer = gzip.decompress(_blob(debian, json.loads(manifest)["layers"][0]))
    contents = dict(changes)
    with (
        tarfile.open(fileobj=io.BytesIO(layer)) as whole,
        tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as rootfs,
    ):
        for member in whole:
            content = whole.extractfile(member) if member.isreg() else None
            name = member.name.removeprefix("./")
            if name == "etc/apt/sources.list" and content:
                contents["etc/apt/sources.list.d/debian.list"] = content.read()
            if name not in changes:
                rootfs.addfile(member, content)
        for name, data in contents.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o644, TIME
            entry.uname = entry.gname = "root"
            rootfs.addfile(entry, io.BytesIO(data))


def _blob(layout: Path, descriptor: dict[str, str]) -> bytes:
    return (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
