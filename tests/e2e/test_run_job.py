"""``imgbuild run --exec``: a training as users start it, stop it, and go on with it."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.checkout import LEARNT, ROOT, Bases, Checkout
from support.tensorboard_page import answer
from support.waiting import wait_for

IMAGE = "tf-2.2-cpu-debian"
SECONDS = 120
#: Counts steps on each rank, goes on at the number it saved, and saves when it is told to end.
PROGRAM = """
import os, signal, sys, time
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
kept = os.path.join(os.environ["MODEL_DIR"], "steps-" + rank)
steps = int(open(kept).read()) if os.path.exists(kept) else 0
told = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: told.append(1))
print("rank", rank, "of user", os.getuid(), "begins at", steps, flush=True)
while not told and steps < int(sys.argv[1]):
    time.sleep(0.05)
    steps += 1
if told:
    time.sleep(2)  # what is larger takes its time
with open(kept, "w") as file:
    file.write(str(steps))
print("rank", rank, "saved", steps, flush=True)
sys.exit(0 if told else int(sys.argv[2]))
"""


@dataclass(frozen=True)
class Trainer:
    """Who trains `count.py` with a volume of checkpoints; ``name`` begins all that it starts."""

    checkout: Checkout
    name: str
    code: Path
    selection: tuple[str, ...]

    def words(self, *options: str, program: tuple[str, ...]) -> tuple[str, ...]:
        own = ("--job", self.name, "--checkpoints", self.name, "--code", str(self.code))
        return ("run", "--exec", *self.selection, *own, *options, "--", *program)

    def left(self) -> str:
        """Return the containers that are there, running or not."""
        return self.checkout.printed("ps", "--all", f"--filter=name={self.name}", "--quiet")


@pytest.fixture
def trainer(base: Bases, checkout: Checkout, open_folder: Path, mark: str) -> Trainer:
    (open_folder / "count.py").write_text(PROGRAM, encoding="utf-8")
    return Trainer(checkout, mark, open_folder, base(IMAGE).selection)


def test_two_ranks_learn_with_horovod(trainer: Trainer) -> None:
    options = ("-np", "2", "--code", str(ROOT / "examples"), "--user", "4321:4321")
    words = trainer.words(*options, program=("python", "train_horovod.py"))
    printed = trainer.checkout.run(*words, timeout=SECONDS * 3).stdout
    assert "2 ranks learnt" in printed
    assert LEARNT.search(printed)
    assert trainer.left() == ""


def test_the_time_limit_lets_ranks_save_and_the_next_run_goes_on(trainer: Trainer) -> None:
    options = ("-np", "2", "--user", "4321:4321")
    program = ("python", "count.py", "1000000", "0")
    words = trainer.words(*options, "--time-limit", "5s", program=program)
    first = trainer.checkout.run(*words, code=124, timeout=SECONDS)
    assert "of user 4321 begins at 0" in first.stdout
    saved = dict(re.findall(r"rank (\d) saved (\d+)", first.stdout))
    assert {*saved} == {"0", "1"}
    last = str(max(map(int, saved.values())) + 3)
    words = trainer.words(*options, program=("python", "count.py", last, "7"))
    second = trainer.checkout.run(*words, code=7, timeout=SECONDS)
    for rank, steps in saved.items():
        assert f"rank {rank} of user 4321 begins at {steps}" in second.stdout
    assert trainer.left() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_it_leaves_nothing_running(trainer: Trainer, number: signal.Signals) -> None:
    words = trainer.words(
        *("--tensorboard", "/model", "--user", "4321:4321"),
        program=("python", "count.py", "1000000", "0"),
    )
    with trainer.checkout.start(*words) as started:
        assert started.stdout
        assert started.stderr
        found = re.search(r"TensorBoard: (http://127\.0\.0\.1:\d+/)", started.stderr.readline())
        assert found
        assert "begins at 0" in started.stdout.readline()
        page = f"{found[1]}data/plugins_listing"
        assert "scalars" in wait_for(lambda: answer(page), SECONDS, page)
        assert len(trainer.left().splitlines()) == 2
        started.send_signal(number)
        output = started.stdout.read()  # until the clients have ended, too
        errors = started.stderr.read()
    assert re.search(r"rank 0 saved \d+", output)
    if number != signal.SIGKILL:
        assert started.returncode == 130
        assert "interrupted. Nothing is left running." in errors
    # After SIGKILL the engine still removes what ended.
    wait_for(lambda: not trainer.left(), SECONDS, "the end of all containers")


def test_an_image_that_was_not_built_is_not_looked_for_elsewhere(checkout: Checkout) -> None:
    words = ("run", "--exec", "tf-2.1-gpu-ubuntu", "--", "true")
    assert "Build it first" in checkout.run(*words, code=2, timeout=SECONDS).stderr


def test_a_missing_module_ends_with_the_command_that_adds_it(trainer: Trainer) -> None:
    words = trainer.words(program=("python", "-c", "import imgbuild_none.part"))
    done = trainer.checkout.typed(trainer.checkout.command(*words), 1, SECONDS)
    assert "No module named 'imgbuild_none'" in done.stderr
    assert f"`imgbuild extend {IMAGE} --pip imgbuild_none`" in done.stderr
