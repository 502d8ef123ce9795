"""Copies of this checkout to break things in; their images have another repository.

Matrix, locks and imgbuild are the real ones; the stack is the one that every machine can build.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import yaml

from imgbuild.core.files import ContentStore, write_text
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.labels import NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.inputs.bootstrap import base_folder
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix

SOURCE = Path(__file__).resolve().parents[2]
#: What the tiny images of some tests need of ``images/``, beside templates of their own.
INPUTS = ("images/files", "images/locks", "images/prefix")
_CONFTEST = """\
from result_stream import result_stream


def pytest_addoption(parser):
    parser.addoption("--expect")
    parser.addoption("--no-gpu")
    parser.addoption("--emulated", action="store_true")


def pytest_configure(config):
    if plugin := result_stream():
        config.pluginmanager.register(plugin)
"""
_LABELS = """\
LABEL {{ labels | join(" ") }}
CMD ["/bin/bash"]
"""
TEMPLATE, SUITES = "images/templates/Dockerfile.j2", "tests/image"
#: A download that a machine may substitute, and what stands in its place.
CPYTHON, CONTENT = "Python-3.6.15.tar.xz", b"a source" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
_SETTINGS = "imgbuild.local.yaml"


def tiny(template: str, *, conftest: str = "", **suites: str) -> dict[str, str]:
    """Return the files of tiny images, by path: a template without its end, and suites by name."""
    return {
        TEMPLATE: template + _LABELS,
        f"{SUITES}/conftest.py": _CONFTEST + conftest,
        **{f"{SUITES}/test_{name}.py": text for name, text in suites.items()},
    }


def copied_checkout(
    root: Path,
    repository: str,
    parts: Sequence[str] = INPUTS,
    files: Mapping[str, str] = MappingProxyType({}),
    host: str | None = None,
) -> None:
    """Make a checkout with folders and files of this one, and others by path; render nothing."""
    make_base()
    for part in parts:
        shutil.copytree(SOURCE / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    matrix = (SOURCE / "matrix.yaml").read_text(encoding="utf-8")
    # An engine of tests reaches no registry of the world: the base is made by `make_base`.
    matrix, count = re.subn("\n    image: debian@.*", "", matrix)
    assert count == 1, "matrix.yaml no longer has one base image of Debian"
    matrix, count = re.subn("(?<=\nrepository: )imgbuild/tensorflow\n", f"{repository}\n", matrix)
    assert count == 1, "matrix.yaml no longer has one repository"
    kept = (f"{SUITES}/result_stream.py", f"{SUITES}/out_of_time.py", "images/evidence.json")
    written = {path: (SOURCE / path).read_text(encoding="utf-8") for path in kept}
    for path, text in {**written, "matrix.yaml": matrix, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    if (SOURCE / _SETTINGS).exists():
        shutil.copy(SOURCE / _SETTINGS, root / _SETTINGS)
    if host:
        change_settings(root, engine={**settings_of(root).get("engine", {}), "host": host})


def remove_images(engine: Engine, repository: str) -> None:
    """Remove what imgbuild built for this repository, and its names: others may have got one."""
    for image in engine.images(NAME):
        for tag in image.tags:
            if tag.startswith(f"{repository}:"):
                engine.untag(tag)
        if image.labels.get(REPOSITORY) == repository:
            engine.discard(image.id)


def settings_of(root: Path) -> dict[str, Any]:
    path = root / _SETTINGS
    found = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    return dict(found or {})


def ca_bundle(root: Path) -> Path:
    """Return the certificates that builds of a checkout are given."""
    return Path(settings_of(root).get("ca_bundle", "/etc/ssl/certs/ca-certificates.crt"))


def change_settings(root: Path, **settings: Any) -> None:
    """Change settings of a checkout, such as ``publishing``; None takes one away."""
    kept = {key: one for key, one in {**settings_of(root), **settings}.items() if one is not None}
    (root / _SETTINGS).write_text(yaml.safe_dump(kept), encoding="utf-8")


def debian_image(root: Path) -> Image:
    """Return an image of a checkout on Debian's base image."""
    images = all_images(load_matrix(root / "matrix.yaml"))
    return next(image for image in images if image.os_name == "debian-12")


@cache
def make_base() -> None:
    """Make Debian's base image in this user's cache: no build does, and copies pin no image."""
    with TemporaryDirectory() as folder:
        settings = Path(folder, _SETTINGS)
        base = {"debian-12": {"from": "bootstrap"}}
        settings.write_text(yaml.safe_dump({**settings_of(SOURCE), "base": base}), encoding="utf-8")
        program = [sys.executable, "-m", "imgbuild", "--settings", str(settings)]
        subprocess.run(
            [*program, "matrix", "tf-1.10-cpu-debian", "--make-bases"],
            cwd=SOURCE,
            env={**os.environ, "IMGBUILD_PROJECT": str(SOURCE)},
            stdout=subprocess.DEVNULL,
            check=True,
        )


def take_base(root: Path, cache: Path) -> None:
    """Take over the base image alone into the cache of another user."""
    made = base_folder(debian_image(root), Settings())
    shutil.copytree(made, cache / "imgbuild" / "base" / made.name)


def substitute_cpython(root: Path, cache: Path) -> None:
    """Let CPython come from its source, a substitute in the cache, which no tiny image compiles."""
    change_settings(root, cpython=None, substitutes={CPYTHON: SHA256})
    # Whole at once: others may read it at this moment.
    write_text(ContentStore(cache / "imgbuild" / "downloads").path(SHA256), CONTENT.decode())
