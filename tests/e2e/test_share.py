"""An extended image is shared: pushed, signed, verified elsewhere, extended there, pushed again."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.engine.client import Engine
from support.copied_checkout import remove_images
from support.debian_program import debian_program, with_program
from support.own_registry import OwnRegistry, own_registry
from support.publishing_project import PublishingProject, publishing_project

LOCAL, PASSWORD = "imgbuild-sharing/tensorflow", "the-password-of-a-key"
NAME = "tf-1.10-cpu-debian"
FIRST, SECOND = "imgbuild-sharing/train:1", "imgbuild-sharing/train:2"
ADOPTED = "imgbuild-sharing/paper:1"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[OwnRegistry]:
    (tmp_path / "registry").mkdir()
    with own_registry(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[PublishingProject]:
    """Give a checkout on the machine's engine, with cosign and a pair of keys: own.key, own.pub."""
    made = publishing_project(tmp_path, host, local=LOCAL)
    own = {"COSIGN_PASSWORD": PASSWORD, "PATH": os.environ["PATH"]}
    made = replace(made, variables=with_program(own, debian_program("cosign", "sid")))
    words = ["cosign", "generate-key-pair", "--output-key-prefix=own"]
    environment = {**os.environ, **made.variables}
    subprocess.run(words, cwd=made.root, env=environment, check=True, capture_output=True)
    (made.root / "app.py").write_text("print('trained')\n", encoding="utf-8")
    yield made
    for name in (FIRST, SECOND, ADOPTED):
        made.docker("rmi", "--force", name)
    remove_images(engine, LOCAL)


def test_extended_image_is_shared(
    project: PublishingProject, registry: OwnRegistry, tmp_path: Path
) -> None:
    repository = f"{registry.host}/team/train"
    push = ("--to", repository, "--allow-substituted", f"--sign-key={project.root / 'own.key'}")
    project.run("build", "--tf", "1.10")
    add = ("--copy", "app.py:/opt/app.py", "--tag", FIRST)
    project.run("extend", "--tf", "1.10", *add, "--no-test")
    assert "no suite was run" in project.run("push", FIRST, *push, code=1).stderr
    project.run("extend", "--tf", "1.10", *add)
    assert "--to" in project.run("push", FIRST, "--to", f"{registry.host}/x/app", code=2).stderr
    assert project.run("push", FIRST, *push).returncode == 0
    assert "up to date" in project.run("push", FIRST, *push).stdout
    (published,) = project.json("release", "list", "--from", repository)
    assert published["image"] == "train:1"
    assert published["tag"] == f"1-{published['release']}"
    assert published["points_here"] == ["1"]

    adopt_and_push(project, registry, push[2:], tmp_path / "paper")

    # Somebody else: another state folder, and an engine that has nothing of it.
    project.docker("rmi", "--force", FIRST)
    other = project.copied(tmp_path / "other", "team/train")
    for report in (other.state / "imgbuild" / "reports").glob("*"):
        report.unlink()
    other.set_up(verify={"key": str(project.root / "own.pub")})
    reference = f"{repository}:1"
    found = {one["name"]: one for one in other.json("verify", reference)}
    assert {one["problem"] for one in found.values()} == {""}
    assert found["base"]["text"] == published["base"]
    assert found["suites"]["text"] == "bytes passed"
    (other.root / "more.py").write_text("", encoding="utf-8")
    more = ("--copy", "more.py:/opt/more.py", "--tag", SECOND, "--no-test")
    other.run("extend", reference, *more)
    trained = other.printed("run", "--rm", "--network=none", SECOND, "ls", "/opt")
    assert trained.split() == ["app.py", "more.py"]
    base = other.docker("image", "inspect", "--format", "{{json .Config.Labels}}", SECOND).stdout
    assert f'"org.opencontainers.image.base.name":"{reference}"' in base
    assert published["digest"] in base

    # A key that did not sign it is no reason to build on it.
    other.docker("rmi", "--force", reference)
    subprocess.run(
        ["cosign", "generate-key-pair", "--output-key-prefix=foreign"],
        cwd=other.root,
        env={**os.environ, **project.variables},
        check=True,
        capture_output=True,
    )
    other.set_up(verify={"key": str(other.root / "foreign.pub")})
    refused = other.run("extend", reference, *more, code=1)
    other.docker("rmi", "--force", reference)
    assert "no signature" in refused.stderr


def adopt_and_push(
    project: PublishingProject, registry: OwnRegistry, options: tuple[str, ...], folder: Path
) -> None:
    """Publish, sign and verify an adopted image like an extended one."""
    folder.mkdir()
    (folder / "train.py").write_text("import tensorflow as tf\nprint(tf.__version__)\n")
    # The stand-in for the image of TensorFlow has no Python, so the program itself fails.
    own = ("--project", str(project.root))
    project.run("adopt", str(folder), "--tf", "1.10", "--tag", ADOPTED, *own, code=1)
    repository = f"{registry.host}/team/paper"
    assert project.run("push", ADOPTED, "--to", repository, *options).returncode == 0
    (published,) = project.json("release", "list", "--from", repository)
    assert published["image"] == ADOPTED.rpartition("/")[2]
    signed = {"key": str(project.root / "own.pub")}
    project.set_up(verify=signed)
    checks = project.json("verify", f"{repository}:1")
    assert {check["problem"] for check in checks} == {""}
    project.set_up(verify=None)
