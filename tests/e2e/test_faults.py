"""Faults in the middle of real work: nothing gets a name, nothing stays behind."""

import signal
import subprocess
import time
import uuid

import pytest
from checkout import COPY_REPOSITORY, Checkout

from imgbuild.engine.client import Engine
from releases import release_of
from waiting import wait_for

#: The quickest image to build.
TF = "1.10"
NAME = "tf-1.10-cpu-debian"
#: How long it may take to build it.
BUILDING = 600
#: They are enough to find what is broken here; the whole set is run in test_build.py.
SUITES = ("pins", "tensorflow")


@pytest.fixture
def copy(copy: Checkout) -> Checkout:
    """Give the copy, with two suites."""
    for path in (copy.root / "tests" / "image").glob("test_*.py"):
        if path.stem.removeprefix("test_") not in SUITES:
            path.unlink()
    return copy


def _named(engine: Engine) -> list[str]:
    tags = [tag for image in engine.images("imgbuild.name") for tag in image.tags]
    return [tag for tag in tags if tag.startswith(COPY_REPOSITORY)]


def _ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=120)
    return process.returncode, stderr


def _stall(copy: Checkout) -> None:
    """Let the step that installs the packages wait for minutes; no cache has this very step."""
    step = "sh /run/packages/install"
    stalled = f"sleep 300 && : {uuid.uuid4()} && {step}"
    copy.edit("images/templates/partials/packages.j2", step, stalled)


def _stalls(copy: Checkout) -> bool:
    logs = copy.state / "imgbuild" / "logs"
    return any("sleep" in path.read_text() for path in logs.glob(f"*{NAME}.log"))


def test_an_image_whose_suites_fail_gets_no_name(copy: Checkout, engine: Engine) -> None:
    """h5py is taken out: only the suites can find that; then it is put back."""
    # Before the labels: what comes after them is somebody else's image, built on top.
    broken = "\nLABEL "
    removed = "\nRUN rm -rf /opt/python/lib/python3.6/site-packages/h5py\nLABEL "
    copy.edit("images/templates/partials/final.j2", broken, removed)
    result = copy.run("build", "--tf", TF, code=1)
    assert f"{NAME}  suites failed" in result.stdout
    assert f"{NAME} was not tagged: " in result.stderr
    assert "tensorflow: test_" in result.stderr
    assert _named(engine) == []
    assert copy.started(engine) == set()
    plan = copy.plan(TF)
    assert (plan["action"], plan["reason"]) == ("test", "built, its suites failed last time")
    copy.edit("images/templates/partials/final.j2", removed, broken)
    copy.run("build", "--tf", TF)
    assert len(_named(engine)) == 2


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_an_interrupted_build_leaves_nothing(
    copy: Checkout, engine: Engine, number: signal.Signals
) -> None:
    _stall(copy)
    process = copy.start("build", "--tf", TF)
    wait_for(lambda: _stalls(copy), BUILDING)
    process.send_signal(number)
    started = time.monotonic()
    code, stderr = _ended(process)
    assert code == 130, stderr
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert time.monotonic() - started < 30
    assert _named(engine) == []
    assert copy.started(engine) == set()


def test_an_interrupted_test_leaves_no_container(copy: Checkout, engine: Engine) -> None:
    process = copy.start("build", "--tf", TF)
    wait_for(lambda: bool(copy.started(engine)), BUILDING)
    process.send_signal(signal.SIGTERM)
    code, stderr = _ended(process)
    assert code == 130, stderr
    assert copy.started(engine) == set()
    assert _named(engine) == []


def test_what_a_killed_test_left_is_cleared_by_the_next(copy: Checkout, engine: Engine) -> None:
    process = copy.start("build", "--tf", TF)
    wait_for(lambda: bool(copy.started(engine)), BUILDING)
    process.kill()
    _ended(process)
    assert copy.started(engine)
    assert _named(engine) == []
    assert copy.plan(TF)["action"] == "test"
    copy.run("build", "--tf", TF)
    assert copy.started(engine) == set()
    assert len(_named(engine)) == 2


def test_two_builds_of_one_image_at_once(copy: Checkout, engine: Engine) -> None:
    _stall(copy)
    first = copy.start("build", "--tf", TF)
    wait_for(lambda: _stalls(copy), BUILDING)
    second = copy.run("build", "--tf", TF, code=3)
    assert (
        f"{NAME} is being built, tested or pushed by another imgbuild (process {first.pid})"
        in second.stderr
    )
    first.send_signal(signal.SIGINT)
    assert _ended(first)[0] == 130
    assert _named(engine) == []


def test_a_wrong_sha256_stops_the_build(copy: Checkout, engine: Engine) -> None:
    wrong = "0" * 64
    right = "2b1599c701fafdb7deba83a19306fb9b9166ffce0efc0a8aa03008761b428187"
    copy.edit("matrix.yaml", right, wrong)
    result = copy.run("build", "--tf", TF, code=1)
    assert f"Building {NAME} failed in the step '[horovod-source " in result.stderr
    assert "sha256" in result.stderr
    assert str(copy.state / "imgbuild" / "logs") in result.stderr
    assert _named(engine) == []


def test_a_wrong_hash_in_a_lock_stops_the_build(copy: Checkout, engine: Engine) -> None:
    lock = copy.root / "images" / "locks" / f"tf-{release_of('1.10')}-py3.6-cpu.txt"
    lines = lock.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("absl-py=="))
    end = next(i for i in range(start + 1, len(lines)) if not lines[i].startswith("    "))
    lines[start:end] = [lines[start], "    --hash=sha256:" + "0" * 64]
    lock.write_text("\n".join(lines) + "\n")
    refused = copy.run("build", "--tf", TF, code=2)
    assert "Run `imgbuild render`" in refused.stderr
    copy.run("render")
    result = copy.run("build", "--tf", TF, code=1)
    assert "packages" in result.stderr
    assert "absl-py" in result.stderr
    assert _named(engine) == []


def test_an_input_that_cannot_be_reached_is_named(copy: Checkout, engine: Engine) -> None:
    """CPython's source, at an address where nothing listens."""
    settings = copy.root / "imgbuild.local.yaml"
    text = settings.read_text() if settings.exists() else ""
    settings.write_text("".join(_without_cpython(text)))
    url = "https://www.python.org/ftp/python/3.6.15/Python-3.6.15.tar.xz"
    copy.edit("matrix.yaml", url, "http://127.0.0.1:9/Python-3.6.15.tar.xz")
    result = copy.run("build", "--tf", TF, code=3)
    assert "127.0.0.1:9" in result.stderr
    assert _named(engine) == []


def _without_cpython(text: str) -> list[str]:
    """Return the settings' lines without the block ``cpython:``."""
    kept = []
    inside = False
    for line in text.splitlines(keepends=True):
        inside = line.startswith("cpython:") or (inside and line.startswith((" ", "-")))
        if not inside:
            kept.append(line)
    return kept


def test_only_what_changed_is_rebuilt_and_the_plan_says_why(copy: Checkout) -> None:
    copy.run("build", "--tf", TF)
    assert copy.plan(TF)["action"] == "nothing"
    copy.edit("images/files/horovod/check_compiler.py", '"""Stop', '"""Halt')
    plan = copy.plan(TF)
    assert plan["action"] == "build"
    assert plan["reason"].startswith("changed: files/horovod ")
