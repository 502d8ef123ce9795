"""``imgbuild run --format compose``: the file is run as its first lines say."""

import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkout import ROOT, Base, Checkout

IMAGE = "tf-2.2-cpu-debian"
LEARNT = re.compile(r"learnt: y = (1\.9\d|2\.0\d) x \+ (0\.9\d|1\.0\d)")
SECONDS = 600


@dataclass(frozen=True)
class Composer:
    """Who has saved a file in a folder, and types what is in its comment."""

    checkout: Checkout
    folder: Path
    selection: tuple[str, ...]
    name: str

    def save(self, *options: str, program: str) -> list[str]:
        """Save the file of a job; return the commands of its comment."""
        own = (*self.selection, "--job", self.name, "--code", str(ROOT / "examples"))
        words = ("run", "--format", "compose", *own, *options, "--", "python", program)
        text = self.checkout.run(*words, timeout=60).stdout
        (self.folder / "compose.yaml").write_text(text, encoding="utf-8")
        return re.findall(r"^#   (docker .*)$", text, re.MULTILINE)

    def type(self, line: str, code: int = 0) -> str:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if plugin.returncode:
            line = line.replace("docker compose", "docker-compose")
        result = subprocess.run(
            line.split(),
            cwd=self.folder,
            env=self.checkout.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert result.returncode == code, f"{line}\n{result.stdout}{result.stderr}"
        return result.stdout

    def left(self) -> str:
        named = f"--filter=name={self.name}"
        found = [
            self.checkout.docker(*words, named, code=0).stdout
            for words in (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q"))
        ]
        return "".join(found)


@pytest.fixture
def composer(base: Callable[[str], Base], checkout: Checkout, tmp_path: Path) -> Iterator[Composer]:
    made = Composer(checkout, tmp_path, base(IMAGE).selection, f"e2e-{uuid.uuid4().hex[:8]}")
    yield made
    if (tmp_path / "compose.yaml").exists():
        made.type(f"docker compose -p {made.name} down --volumes")
    checkout.docker("volume", "rm", "--force", made.name)


def test_two_nodes_learn_together(composer: Composer) -> None:
    options = ("--nodes", "2", "-np", "2", "--env", "PRICE=$5 $HOME")
    run, down = composer.save(*options, program="train_horovod.py")
    printed = composer.type(run)
    assert "2 ranks learnt" in printed
    assert LEARNT.search(printed)
    composer.type(down)
    assert composer.left() == ""


def test_the_exit_code_and_the_variables_are_those_of_the_training(composer: Composer) -> None:
    program = composer.folder / "say.py"
    program.write_text("import os\nprint('PRICE', os.environ['PRICE'])\nraise SystemExit(7)\n")
    composer.folder.chmod(0o755)
    options = ("--env", "PRICE=$5 $HOME", "--user", "0", "--code", str(composer.folder))
    run, down = composer.save(*options, program="say.py")
    assert "PRICE $5 $HOME" in composer.type(run, code=7)
    composer.type(down)
    assert composer.left() == ""


@pytest.mark.nightly
def test_a_worker_and_a_parameter_server_share_a_volume(composer: Composer) -> None:
    options = ("--nodes", "2", "--ps", "1", "--checkpoints", composer.name)
    create, run, down = composer.save(*options, "--user", "4321:4321", program="train_ps.py")
    composer.type(create)
    assert LEARNT.search(composer.type(run))
    composer.type(down)
    assert composer.left() == f"{composer.name}\n", "the checkpoints stay"
