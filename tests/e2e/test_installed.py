"""imgbuild as a user installs it: in an environment of its own, run where there is no checkout."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from imgbuild.dockerfile.labels import INPUT_DIGEST, REPOSITORY
from imgbuild.engine.client import Engine
from support.checkout import COPY_REPOSITORY, ROOT, Checkout
from support.copied_checkout import remove_images

IMAGE = ("--tf", "2.2", "--stack", "debian")


@dataclass(frozen=True, kw_only=True)
class InstalledProgram(Checkout):
    """A folder to run the installed program in; settings of its user are below ``config``."""

    env: Path

    @property
    def config(self) -> Path:
        return self.state / "config" / "imgbuild"

    @property
    def environment(self) -> dict[str, str]:
        own = {"XDG_CONFIG_HOME": str(self.config.parent)}
        return {n: v for n, v in super().environment.items() if n != "PYTHONPATH"} | own

    def command(self, *arguments: str) -> list[str]:
        return [str(self.env / "bin" / "imgbuild"), *arguments]


@pytest.fixture
def installed(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[InstalledProgram]:
    """Give the program in an empty folder, with the settings of this machine."""
    made = InstalledProgram(tmp_path / "empty", tmp_path / "state", host, env=tmp_path / "env")
    made.root.mkdir()
    uv = str(Path(sys.executable).with_name("uv"))
    environment = {n: v for n, v in os.environ.items() if n != "VIRTUAL_ENV"}
    for words in (
        ("venv", "-q", "--python", sys.executable, str(made.env)),
        ("pip", "install", "-q", "--python", str(made.env / "bin" / "python"), str(ROOT)),
    ):
        subprocess.run([uv, *words], check=True, env=environment)
    if (ROOT / "imgbuild.local.yaml").exists():
        made.config.mkdir(parents=True)
        shutil.copy(ROOT / "imgbuild.local.yaml", made.config)
    yield made
    remove_images(engine, COPY_REPOSITORY)


def test_a_family_of_one_s_own_is_built_and_tested(
    installed: InstalledProgram, checkout: Checkout, engine: Engine
) -> None:
    """From an empty folder, in one whose name has a blank and umlauts."""
    (here,) = installed.json("build", *IMAGE, "--dry-run")
    (there,) = checkout.json("build", *IMAGE, "--dry-run")
    assert here["input_digest"] == there["input_digest"]
    assert [*installed.root.iterdir()] == []
    picked = installed.run("list", "--gpu-model", "Tesla V100", "--driver", "450.80").stdout
    assert "tf-2.2-gpu-ubuntu" in picked
    compared = installed.json("diff", "2.2", "2.2-gpu")
    assert compared["differing"]["packages"]["tensorflow-gpu"] == [None, "2.2.0"]

    own = replace(installed, root=installed.root / "für uns")
    installed.run("init", str(own.root))
    own.edit("matrix.yaml", "repository: imgbuild/tensorflow", f"repository: {COPY_REPOSITORY}")
    if installed.config.exists():
        shutil.copy(installed.config / "imgbuild.local.yaml", own.root)
    own.run("render", "--check")
    with (own.root / "images" / "files" / "start" / "ssh_config_mpi").open("a") as file:
        file.write("# of our team\n")
    own.run("build", *IMAGE, "--no-test")
    own.run("test", *IMAGE, "--suite", "pins")
    named = f"{COPY_REPOSITORY}:2.2-cpu"
    (labels,) = [one.labels for one in engine.find_named(COPY_REPOSITORY) if named in one.tags]
    assert labels[REPOSITORY] == COPY_REPOSITORY
    assert labels[INPUT_DIGEST] != there["input_digest"]
    assert "org.opencontainers.image.revision" not in labels
