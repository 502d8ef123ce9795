"""A checkout of one image that is built in a second, and machines that know nothing of each other.

The matrix, the locks and the whole of imgbuild are the real ones; template and suite are small. The
wheel is no Horovod, but it comes out of the stage that Horovod's wheel comes from.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkout import Checkout
from copied_checkout import (
    CONFTEST,
    LABELS,
    SUITES,
    TEMPLATE,
    copied_checkout,
    remove_images,
    take_base,
)

from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage

REPOSITORY = "imgbuild-cached/tensorflow"
NAME = "tf-1.10-cpu-debian"
WHEEL = "horovod-0.0.0-py3-none-any.whl"
_TEMPLATE = """\
FROM base AS os
FROM os AS compiled
COPY files/horovod-0.0.0-py3-none-any.whl /
RUN --network=none echo the wheel is compiled
FROM scratch AS horovod-wheel
COPY --from=compiled /horovod-0.0.0-py3-none-any.whl /
FROM os AS final
RUN --network=none head -c 8000000 /dev/urandom > /bytes
RUN --network=none --mount=type=bind,from=horovod-wheel,target=/run/wheels ls /run/wheels > /wheels
ENV WORD=first
"""
_SUITE = '''\
"""The files are whole."""


def test_files(host):
    assert host.check_output("stat -c %s /bytes").strip() == "8000000"
    assert host.check_output("cat /wheels").strip().endswith(".whl")
'''


@dataclass(frozen=True)
class CachedProject(Checkout):
    """The checkout on one machine: ``state`` and ``cache`` are all that the machine knows."""

    cache: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "XDG_CACHE_HOME": str(self.cache)}

    def build(self, *options: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
        """Build; return what became of the image."""
        result = self.run("build", "--tf", "1.10", "--json", *options, timeout=300)
        (outcome,) = json.loads(result.stdout)
        return outcome, result

    def wheels(self, folder: str = "horovod-wheels") -> list[str]:
        return [path.name for path in self.cache.glob(f"imgbuild/{folder}/*/*.whl")]


def stored(engine: Engine) -> list[StoredImage]:
    """Return the engine's images of this project."""
    return engine.images(f"imgbuild.repository={REPOSITORY}")


def another_machine(project: CachedProject, engine: Engine, folder: Path) -> CachedProject:
    """Forget the images, what was found in them, and the caches. Give a machine with the base."""
    forget(engine)
    base = "imgbuild/base"
    shutil.copytree(project.cache / base, folder / "cache" / base, symlinks=True)
    return CachedProject(project.root, folder / "state", project.host, folder / "cache")


def forget(engine: Engine) -> None:
    """Remove the project's images."""
    remove_images(engine, REPOSITORY)


def cached_project(folder: Path, host: str | None) -> CachedProject:
    """Return a new checkout in ``folder``; its machine has a cache with a base image at most."""
    root, cache = folder / "checkout", folder / "cache"
    files = {
        TEMPLATE: _TEMPLATE + LABELS,
        f"{SUITES}/conftest.py": CONFTEST,
        f"{SUITES}/test_files.py": _SUITE,
    }
    copied_checkout(root, REPOSITORY, files=files)
    take_base(root, cache)
    _write_wheel(root / "images" / "files" / WHEEL)
    project = CachedProject(root, folder / "state", host, cache)
    project.render()
    return project


def _write_wheel(path: Path) -> None:
    folder = "horovod-0.0.0.dist-info"
    files = {
        "horovod/code.py": b"code",
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(data)},\n" for name, data in files.items())
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{folder}/RECORD", f"{record}{folder}/RECORD,,\n")


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
