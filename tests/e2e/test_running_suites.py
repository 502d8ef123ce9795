"""`imgbuild test` on real images: side by side, again, external images, interrupts, misuse."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import Base, Checkout

from imgbuild.engine.client import Engine
from waiting import wait_for

TWO = ("tf-1.12-cpu-debian", "tf-2.2-cpu-debian")
DERIVED = "imgbuild-e2e-derived"

#: A suite that fails at once, and whose name comes before all others.
FAILING = '"""Suite `a_toy`: it fails."""\ndef test_a(): assert False\ndef test_b(): pass\n'
#: A suite that starts another container and a network, and then takes its time.
SLOW = '''"""Suite `a_toy`: it is slow."""
def test_slow(lab, container):
    other = lab.join(lab.network(), "other")
    assert not other.run("sleep", "250", seconds=300).failed
'''


@pytest.fixture
def one(base: Callable[[str], Base]) -> Base:
    return base(TWO[0])


@pytest.fixture
def toy(copy: Checkout) -> Callable[[str], None]:
    """Return how to give the copy a suite of its own."""

    def write(text: str) -> None:
        (copy.root / "tests" / "image" / "test_a_toy.py").write_text(text)

    return write


@pytest.fixture
def derived(checkout: Checkout, one: Base, tmp_path: Path) -> Iterator[str]:
    """Give an image as users make them: ours, and a package on top."""
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    packages = "/opt/python/lib/python3.6/site-packages"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {one.tag}\nCOPY METADATA {packages}/x-1.0.dist-info/METADATA\n"
    )
    checkout.docker("build", "--quiet", "--network=none", "-t", DERIVED, str(tmp_path), code=0)
    yield DERIVED
    checkout.docker("rmi", "--force", DERIVED)


def _reports(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def _before(reports: list[dict[str, Any]]) -> dict[tuple[str, str], bool]:
    return {
        (report["image"], suite["suite"]): suite["before"] is not None
        for report in reports
        for suite in report["suites"]
    }


def test_two_images_at_once_and_then_nothing_to_run(
    base: Callable[[str], Base], checkout: Checkout, tmp_path: Path
) -> None:
    for name in TWO:
        base(name)
    command = ["test", "--tf", "1.12", "--tf", "2.2", "--stack", "debian", "--jobs", "2"]
    command += ("--suite", "pins", "--suite", "contents", "--json", "--report", str(tmp_path))
    first = checkout.run(*command, "--rerun")
    assert set(_before(_reports(first)).values()) == {False}
    lines = [line.split() for line in first.stderr.splitlines()]
    begun = [lines.index([name, "testing", "contents,", "pins"]) for name in TWO]
    ended = [lines.index([name, "passed"]) for name in TWO]
    assert max(begun) < min(ended), first.stderr
    started = time.monotonic()
    again = checkout.run(*command)
    assert time.monotonic() - started < 10
    keys = {(name, suite) for name in TWO for suite in ("pins", "contents")}
    assert _before(_reports(again)) == dict.fromkeys(keys, True)
    summary = (tmp_path / "summary.md").read_text()
    assert "passed before" in summary
    assert all(f"`{name}`" in summary for name in TWO)
    forced = checkout.run(*command, "--rerun")
    assert _before(_reports(forced)) == dict.fromkeys(keys, False)
    for name in TWO:
        assert f'<testsuite name="{name}"' in (tmp_path / name / "junit.xml").read_text()


def test_a_changed_suite_is_run_again_and_no_other(copy: Checkout, one: Base) -> None:
    command = ["test", "--image", one.tag, "--expect", "tf=1.12", "--json"]
    command += ("--suite", "pins", "--suite", "contents")
    copy.run(*command)
    with (copy.root / "tests" / "image" / "test_pins.py").open("a") as suite:
        suite.write("# changed\n")
    result = copy.run(*command)
    assert _before(_reports(result)) == {(one.tag, "contents"): True, (one.tag, "pins"): False}


def test_an_image_that_was_built_on_ours(checkout: Checkout, derived: str) -> None:
    command = ("test", "--image", derived, "--suite", "pins", "--json", "--expect")
    good = checkout.run(*command, "tf=1.12,horovod=0.15,mpi=openmpi")
    (report,) = _reports(good)
    (pins,) = report["suites"]
    assert (pins["failed"], pins["skipped"]) == (0, [])
    assert {"packages", "labels"} <= {*report["not_given"]}
    bad = checkout.run(*command, "tf=1.12,horovod=0.19.5", code=1)
    assert "horovod: pinned 0.19.5, the image has 0.15.2" in bad.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--image", "no-such/image:1", "--expect", "tf=2.2"), "has no image no-such/image:1"),
        (("--image", "no-such/image:1", "--expect", "tf=2.2"), "pull no-such/image:1"),
        (("--image", "x", "--expect", "foo=1"), "give KEY=VALUE, with a key of: tf, python"),
        (("--expect", "tf=2.2"), "give it with --image"),
        (("--tf", "2.2", "--image", "x", "--expect", "tf=2.2"), "without --tf, --cpu"),
        (("--tf", "2.2", "--image", "no-such/image:1"), "has no image no-such/image:1"),
        (("--all", "--image", "x"), "--image names one image, but"),
        (("--tf", "2.2", "--suite", "nope"), "No suite nope. There are: "),
        (("--tf", "2.2", "--jobs", "0"), "--jobs"),
    ],
)
def test_misuse_is_exit_code_2_and_says_what_to_do(
    checkout: Checkout, arguments: tuple[str, ...], expected: str
) -> None:
    result = checkout.run("test", *arguments, code=2)
    assert expected in result.stderr


def test_a_suite_that_does_not_exist_is_refused_for_other_images_too(
    checkout: Checkout, one: Base
) -> None:
    result = checkout.run(
        "test", "--image", one.tag, "--expect", "tf=1.12", "--suite", "nope", code=2
    )
    assert "No suite nope" in result.stderr


def test_the_first_failure_ends_a_run_where_that_is_wanted(
    copy: Checkout, one: Base, toy: Callable[[str], None]
) -> None:
    toy(FAILING)
    command = ["test", "--image", one.tag, "--expect", "tf=1.12", "--json"]
    command += ("--suite", "a_toy", "--suite", "pins")
    (report,) = _reports(copy.run(*command, "--fail-fast", code=1))
    (suite,) = report["suites"]
    assert (suite["suite"], suite["failed"], suite["passed"]) == ("a_toy", 1, 0)
    assert report["not_begun"] == ["pins"]
    (report,) = _reports(copy.run(*command, code=1))
    assert [one["suite"] for one in report["suites"]] == ["a_toy", "pins"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(
    copy: Checkout,
    one: Base,
    toy: Callable[[str], None],
    engine: Engine,
    number: signal.Signals,
) -> None:
    toy(SLOW)
    process = copy.start("test", "--image", one.tag, "--expect", "tf=1.12", "--suite", "a_toy")
    wait_for(lambda: _all_started(copy, engine), 120)
    time.sleep(1)  # the slow command runs
    process.send_signal(number)
    started = time.monotonic()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert time.monotonic() - started < 20
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert copy.started(engine) == set()
    assert _processes(copy) == []


def test_what_a_killed_run_left_goes_with_the_next(
    copy: Checkout, one: Base, toy: Callable[[str], None], engine: Engine
) -> None:
    toy(SLOW)
    command = ("test", "--image", one.tag, "--expect", "tf=1.12")
    process = copy.start(*command, "--suite", "a_toy")
    wait_for(lambda: _all_started(copy, engine), 120)
    pytests = _processes(copy)
    process.kill()
    process.communicate(timeout=60)
    for pid in pytests:
        if Path(f"/proc/{pid}").exists() and pid != process.pid:
            _kill(pid)
    assert copy.started(engine)
    copy.run(*command, "--suite", "pins")
    assert copy.started(engine) == set()


def _all_started(copy: Checkout, engine: Engine) -> bool:
    return len(copy.started(engine)) == len(("suspect", "other", "network"))


def _processes(copy: Checkout) -> list[int]:
    """Return the processes that the copy's commands started: they know its state folder."""
    wanted = f"XDG_STATE_HOME={copy.state}\0".encode()
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and wanted in _environment(folder)
    ]


def _environment(folder: Path) -> bytes:
    try:
        return (folder / "environ").read_bytes()
    except OSError:  # it has ended, or belongs to somebody else
        return b""


def _kill(pid: int) -> None:
    import os
    from contextlib import suppress

    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
