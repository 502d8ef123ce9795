"""Put an image and its suites into a folder, for a machine with a GPU and without Docker.

`python tests/gpu/bundle.py IMAGE FOLDER`, IMAGE a name of the matrix such as tf-2.2-gpu-ubuntu; on
that machine `sudo python3 FOLDER/chroot_run.py`. The folder has the image's files, what the engine
and the matrix say of it, the suites, and pytest, for any Python from 3.10 on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from uv import find_uv_bin

from imgbuild.core.project import Project
from imgbuild.engine.discovery import resolve_host
from imgbuild.matrix.images import all_images, standin_image
from imgbuild.matrix.load import load_matrix
from imgbuild.suites.expectation import expectation

HERE = Path(__file__).resolve().parent
CARRIED = ("chroot_run.py", "chroot_docker.py", "gpu_report.py")
#: The oldest Python that the suites and pytest run on.
PYTHON = "3.10"


def main(words: list[str]) -> None:
    """Fill the folder; it must be new, so that nothing in it is of another image."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", help="its name in the matrix; the engine must have it")
    parser.add_argument("folder", type=Path, help="the folder to make")
    options = parser.parse_args(words)
    name, folder = options.image, options.folder
    if folder.exists():
        parser.error(f"{folder} is there already: name a new folder, or remove it.")
    project = Project(HERE.parents[1])
    settings = project.settings
    host = resolve_host(settings.engine)
    if host:
        os.environ["DOCKER_HOST"] = host
    images = {image.name: image for image in all_images(load_matrix(project.matrix))}
    if name not in images:
        parser.error(f"{name} is none of the matrix; `imgbuild list` has the names.")
    standin = settings.standin
    image = standin_image(images[name]) if standin else images[name]
    inspect = ["docker", "image", "inspect", image.tags[0]]
    inspected = subprocess.run(inspect, stdout=subprocess.PIPE, check=False)
    if inspected.returncode != 0:
        parser.error(f"the engine has no {image.tags[0]}: imgbuild build {name}")
    folder.mkdir(parents=True)
    (folder / "image.json").write_bytes(inspected.stdout)
    expected = expectation(images[name], project, standin.versions if standin else None)
    (folder / "expect.json").write_text(json.dumps(expected), encoding="utf-8")
    for file in CARRIED:
        shutil.copy(HERE / file, folder)
    shutil.copytree(project.suites, folder / "image", ignore=shutil.ignore_patterns("__pycache__"))
    pytest = [f"{package}=={version(package)}" for package in ("pytest", "pytest-testinfra")]
    install = [find_uv_bin(), "pip", "install", "--quiet", "--target", str(folder / "python")]
    install += ["--python-version", PYTHON, "--only-binary", ":all:", "--no-compile-bytecode"]
    subprocess.run([*install, *pytest], check=True)
    export(json.loads(inspected.stdout)[0]["Id"], folder / "rootfs.tar.gz")


def export(image_id: str, file: Path) -> None:
    """Write the files of an image as a compressed tar."""
    container = subprocess.check_output(["docker", "create", image_id], text=True).strip()
    try:
        with file.open("wb") as stream:
            exported = subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE)
            subprocess.run(["gzip", "-1"], stdin=exported.stdout, stdout=stream, check=True)
        if exported.wait():
            sys.exit("docker export failed")
    finally:
        subprocess.run(["docker", "rm", container], stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
