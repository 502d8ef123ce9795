"""``imgbuild run --format compose``: the file is run as its first lines say."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support.checkout import LEARNT, ROOT, Bases, Checkout

IMAGE = "tf-2.2-cpu-debian"
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
        if self.checkout.docker("compose", "version").returncode:
            line = line.replace("docker compose", "docker-compose")
        return replace(self.checkout, root=self.folder).typed(line.split(), code, SECONDS).stdout

    def left(self) -> str:
        named = f"--filter=name={self.name}"
        listings = (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q"))
        return "".join(self.checkout.printed(*words, named) for words in listings)


@pytest.fixture
def composer(base: Bases, checkout: Checkout, tmp_path: Path, mark: str) -> Composer:
    return Composer(checkout, tmp_path, base(IMAGE).selection, mark)


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
    assert composer.left() == composer.name, "the checkpoints stay"
