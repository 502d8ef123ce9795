"""A checkout with as many images as wanted: the rows of the real matrix, again and again.

    python benchmarks/generated_project.py FOLDER 300

Clone number N of TensorFlow A.B.C is called A.(B + N * 100).C and has the same pins. Dockerfiles
are rendered and locks made to fit, so `imgbuild build --all --plan` works there; nothing of it can
be built, since there are no such versions.
"""

from __future__ import annotations

import copy
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from imgbuild.dockerfile.render import render_all, write_all
from imgbuild.dockerfile.requirements import lock_requests
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project

ROOT = Path(__file__).resolve().parents[1]
#: What is added to the second number of a version, for each clone.
STEP = 100
_REQUEST = re.compile(r"^# request: sha256:[0-9a-f]{64}$", re.MULTILINE)


def generated_project(folder: Path, images: int, original: Path = ROOT) -> Project:
    """Return a checkout in ``folder``, which must not exist, with exactly ``images`` images.

    Its Dockerfiles are rendered and its locks fit, as in a checkout where nothing is to be done.
    """
    for name in ("templates", "files", "locks"):
        shutil.copytree(original / "images" / name, folder / "images" / name)
    suites = Path("tests", "image")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(original / suites, folder / suites, ignore=ignored)
    project = Project(folder)
    matrix = yaml.load((original / "matrix.yaml").read_bytes(), Loader=yaml.BaseLoader)  # noqa: S506
    text = yaml.safe_dump(_grown(matrix, images), sort_keys=False, width=1000)
    project.matrix.write_text(text, encoding="utf-8")
    _finish(project)
    return project


def _grown(matrix: dict[str, Any], images: int) -> dict[str, Any]:
    """Return the matrix with rows until it has ``images`` images, and what the rows refer to."""
    rows: list[dict[str, Any]] = []
    tables = dict(matrix["tensorflow"])
    horovod = _without_bounds(matrix["horovod"])
    left, clone = images, 0
    while left:
        for row in matrix["images"]:  # copies: YAML would write what is there twice as an alias
            variants = row["variants"][:left]
            if variants:
                version = _version(row["tensorflow"], clone)
                tables[version] = _renamed(matrix["tensorflow"][row["tensorflow"]], version)
                rows.append({**copy.deepcopy(row), "tensorflow": version, "variants": variants})
                left -= len(variants)
        clone += 1
    return {**matrix, "tensorflow": tables, "horovod": horovod, "images": rows}


def _version(version: str, clone: int) -> str:
    major, minor, patch = version.split(".")
    return f"{major}.{int(minor) + STEP * clone}.{patch}"


def _renamed(table: dict[str, Any], version: str) -> dict[str, Any]:
    return {**copy.deepcopy(table), "tensorboard": version}


def _without_bounds(table: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the Horovod releases as if they worked with every TensorFlow."""
    return {version: {**entry, "tensorflow": ">=1"} for version, entry in table.items()}


def _finish(project: Project) -> None:
    """Give each lock that is missing the content of one that is there, and render."""
    images = all_images(load_matrix(project.matrix))
    template = next(project.locks.glob("tf-*.txt")).read_text(encoding="utf-8")
    for request in lock_requests(images):
        path = project.locks / request.file_name
        text = path.read_text(encoding="utf-8") if path.exists() else template
        for requirement in (*request.requirements, *request.constraints):
            text = _with(text, requirement)
        header = f"# request: sha256:{request.digest}"
        path.write_text(_REQUEST.sub(header, text, count=1), encoding="utf-8")
    rendered = render_all(images, project.templates, project.dockerfiles)
    write_all(rendered, project.dockerfiles)


def _with(lock: str, requirement: str) -> str:
    """Return the lock with the exact version of one package in place of its own."""
    name, _, version = requirement.partition("==")
    pattern = re.compile(rf"^{re.escape(name)}==[^\s;\\]+", re.MULTILINE | re.IGNORECASE)
    if pattern.search(lock):
        return pattern.sub(f"{name}=={version}", lock, count=1)
    return f"{lock.rstrip()}\n{name}=={version} \\\n    --hash=sha256:{'0' * 64}\n"


if __name__ == "__main__":
    made = generated_project(Path(sys.argv[1]).absolute(), int(sys.argv[2]))
    print(f"{made.root}: {len(all_images(load_matrix(made.matrix)))} images")
