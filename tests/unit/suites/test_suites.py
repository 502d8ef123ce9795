"""Reports: what counts as passed, what is remembered, and pytest really run against a container."""

import time
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.suites.code import choose_suites, code_digest, list_suites
from imgbuild.suites.expectation import expectation
from imgbuild.suites.junit import read_junit
from imgbuild.suites.report import Found, Report, SuiteResult, TestFailure, TestSkip
from imgbuild.suites.run import Call, SuiteRun, run_suites
from imgbuild.suites.stopping import Stop
from imgbuild.suites.subject import Subject

PASSED = SuiteResult("pins", 3, (), (), 1.0)
FAILED = SuiteResult("pins", 2, (TestFailure("test_x", "no"),), (), 1.0)
SKIPPED = SuiteResult("pins", 0, (), (TestSkip("test_x", "no GPU"),), 1.0)
IN_PART = SuiteResult("pins", 2, (), (TestSkip("test_x", "no GPU"),), 1.0)
EMPTY = SuiteResult("pins", 0, (), (), 1.0)
NO_GPU = SuiteResult("gpu_runs", 0, (), SKIPPED.skips, 1.0)
SOME_GPU = SuiteResult("gpu_runs", 1, (), SKIPPED.skips, 1.0)
UNASKED = SuiteResult("pins", 0, (), (), 1.0, (TestSkip("test_x", "not asked: labels"),))
BAD_GPU = SuiteResult("gpu_runs", 0, FAILED.failures, SKIPPED.skips, 1.0)


def _report(*suites: SuiteResult, code: str = "sha256:code") -> Report:
    return Report("tf-2.2-cpu-debian", "sha256:id", code, suites)


@pytest.mark.parametrize(
    ("suites", "ok", "found"),
    [
        ((PASSED,), True, Found.PASSED),
        ((FAILED,), False, Found.FAILED),
        ((EMPTY,), False, Found.FAILED),
        ((PASSED, EMPTY), False, Found.FAILED),
        ((SKIPPED,), False, Found.SKIPPED),
        ((PASSED, SKIPPED), False, Found.INCOMPLETE),
        ((IN_PART,), False, Found.INCOMPLETE),
        ((), False, Found.FAILED),
        ((PASSED, NO_GPU), True, Found.PASSED),
        ((NO_GPU,), False, Found.SKIPPED),
        ((PASSED, SOME_GPU), False, Found.INCOMPLETE),
        ((PASSED, BAD_GPU), False, Found.FAILED),
        ((SKIPPED, NO_GPU), False, Found.SKIPPED),
        ((PASSED, UNASKED), True, Found.PASSED),
        ((UNASKED,), False, Found.SKIPPED),
    ],
)
def test_only_checks_that_ran_and_passed_count(
    suites: tuple[SuiteResult, ...], ok: bool, found: Found
) -> None:
    report = _report(*suites)
    assert (report.ok, report.found) == (ok, found)
    assert report.as_json()["verdict"] == found


def test_a_skipped_check_is_told_by_name_and_reason() -> None:
    entry = IN_PART.as_json()
    assert entry["skipped"] == [{"test": "test_x", "reason": "no GPU"}]
    assert (entry["passed"], entry["verdict"]) == (2, "incomplete")
    assert IN_PART.reasons == {"no GPU": 1}


def test_the_suites_are_the_files(project: Project) -> None:
    everyones = (
        *("contents", "frameworks", "horovod", "libraries", "nodes", "parameter_servers", "pins"),
        *("running", "tensorboard", "tensorflow"),
    )
    gpus = ("gpu_built", "gpu_loadable", "gpu_runs")
    assert list_suites(project.suites, "cpu") == everyones
    assert list_suites(project.suites, "gpu") == tuple(sorted((*everyones, *gpus)))


def test_an_unknown_suite_is_refused_with_those_that_exist(project: Project) -> None:
    with pytest.raises(InputError, match=r"No suite gpus\. There are: contents, fra"):
        choose_suites(project.suites, ("pins", "gpus"), "cpu")
    with pytest.raises(InputError, match=r"No suite of cpu images is called gpu_runs\. There are"):
        choose_suites(project.suites, ("gpu_runs",), "cpu")
    assert [s.name for s in choose_suites(project.suites, ("gpu_runs",), "gpu")] == ["gpu_runs"]


def test_changed_suite_code_has_another_digest(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "train.py").write_text("1")
    before = code_digest(tmp_path)
    (tmp_path / "programs" / "train.py").write_text("2")
    assert code_digest(tmp_path) != before


def test_the_expectation_holds_every_pin_and_package(
    images: dict[str, Image], project: Project
) -> None:
    expected = expectation(images["tf-1.15-cpu-debian"], project)
    assert expected["pins"]["horovod"] == expected["packages"]["horovod"] == "0.18.2"
    assert expected["packages"]["tensorflow-cpu"] == "1.15.0"
    assert expected["labels"]["imgbuild.pin.mpi"] == "4.1.4"
    assert expected["horovodrun"] is True
    assert (expected["gpu"], expected["held"], expected["standin"]) == ({}, {}, False)


def test_the_expectation_of_a_gpu_image_says_what_it_needs(
    images: dict[str, Image], project: Project
) -> None:
    expected = expectation(images["tf-1.13-gpu-ubuntu"], project)
    assert expected["gpu"] == {
        "cuda": "10.0",
        "driver": "410.48",
        "newest": "7.5",
        "oldest": "3.5",
    }
    assert expected["held"]["libcudnn7"] == "7.6.3.30-1+cuda10.0"
    assert expected["held"]["libnccl2"] == "2.4.8-1+cuda10.0"
    assert expected["held"]["cuda-cudart-10-0"] == "10.0.130-1"
    assert expected["horovodrun"] is False  # Horovod's launcher refuses Intel MPI
    assert expectation(images["tf-2.2-gpu-ubuntu"], project)["horovodrun"] is True
    assert expectation(images["tf-2.2-gpu-ubuntu"], project)["held"]["libcublas10"]


def test_the_expectation_of_a_stand_in_build_is_what_the_stand_ins_hold(
    images: dict[str, Image], project: Project
) -> None:
    versions = {"python": "3.6.15", "intelmpi-2018.3.222": "2021.8", "openmpi-3.1.2": "4.1.4"}
    image = images["tf-1.13-gpu-ubuntu"]
    expected = expectation(image, project, versions)
    assert expected["standin"] is True
    assert (expected["pins"]["python"], expected["pins"]["mpi"]) == ("3.6.15", "2021.8")
    assert expected["pins"]["git"] == image.version_of("git")
    assert expected["labels"]["imgbuild.pin.python"] == "3.6.2"
    assert expected["pins"].keys() == expectation(image, project)["pins"].keys()
    assert expectation(image, project, {})["standin"] is True


def test_every_gpu_images_expectation_is_one_that_the_suites_take(
    images: dict[str, Image], project: Project
) -> None:
    from expectation import parse_expectation

    for image in images.values():
        parsed = parse_expectation(expectation(image, project))
        subject = Subject(image.name, "id", "name", image.variant, expectation(image, project))
        assert parsed.needs_driver is subject.needs_driver


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.image.test_pins" name="a" time="1.5"/>
<testcase classname="tests.image.test_pins" name="b" time="0.5">
<failure message="m">why</failure></testcase>
<testcase classname="tests.image.test_gpu" name="c" time="0">
<skipped message="no driver"/></testcase>
<testcase classname="tests.image.test_gpu" name="d" time="0"><error message="broken"/></testcase>
</testsuite></testsuites>"""


def test_junit_becomes_suite_results(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(JUNIT)
    pins, gpu, horovod = read_junit(tmp_path / "junit.xml", ("pins", "gpu", "horovod"))
    assert (pins.passed, pins.seconds) == (1, 2.0)
    assert pins.failures == (TestFailure("b", "why"),)
    assert (gpu.passed, gpu.skips) == (0, (TestSkip("c", "no driver"),))
    assert gpu.failures == (TestFailure("d", "broken"),)
    assert not horovod.ok


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("test_a", "test_a"),
        ("test_a[docker://0af9]", "test_a"),
        ("test_a[mpirun-docker://0af9]", "test_a[mpirun]"),
        ("test_a[mpirun-docker://0af9-float32]", "test_a[mpirun-float32]"),
        ("test_a[docker://0af9-cuda]", "test_a[cuda]"),
    ],
)
def test_a_checks_name_is_without_the_container(tmp_path: Path, written: str, name: str) -> None:
    case = f'<testcase classname="test_pins" name="{written}"><failure/></testcase>'
    (tmp_path / "junit.xml").write_text(f"<testsuites>{case}</testsuites>")
    (pins,) = read_junit(tmp_path / "junit.xml", ("pins",))
    assert pins.failures[0].test == name


@pytest.fixture
def engine(images: dict[str, Image]) -> FakeEngine:
    return FakeEngine([StoredImage("sha256:id", images["tf-2.2-cpu-debian"].tags)])


def _project(tmp_path: Path, project: Project, body: str) -> Project:
    """Return a checkout whose only suite has ``body`` and needs no container."""
    suites = tmp_path / "checkout" / "tests" / "image"
    suites.mkdir(parents=True)
    (suites / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--expect')\n"
        "    parser.addoption('--no-gpu')\n"
    )
    (suites / "test_toy.py").write_text(body)
    (tmp_path / "checkout" / "images").symlink_to(project.root / "images")
    return Project(tmp_path / "checkout")


def _run(images: dict[str, Image], folder: Path) -> SuiteRun:
    image = images["tf-2.2-cpu-debian"]
    subject = Subject(image.name, "sha256:id", image.tags[0], "cpu", {"tensorflow": "2.2.0"})
    return SuiteRun(subject, ("toy",), folder)


def test_pytest_runs_and_the_container_goes(
    images: dict[str, Image], engine: FakeEngine, tmp_path: Path, project: Project
) -> None:
    body = "def test_one(): pass\ndef test_two(): assert 1 == 2\n"
    checkout = _project(tmp_path, project, body)
    report = run_suites(_run(images, tmp_path / "out"), engine, None, checkout)
    assert not report.ok
    assert report.suites[0].passed == 1
    assert report.suites[0].failures[0].test == "test_two"
    assert engine.running == {}


@pytest.mark.parametrize("body", ["def test_one(:\n", "import no_such_module\n"])
def test_suites_that_cannot_be_run_are_no_pass(
    images: dict[str, Image], engine: FakeEngine, tmp_path: Path, project: Project, body: str
) -> None:
    checkout = _project(tmp_path, project, body)
    with pytest.raises(CheckFailedError, match=r"could not be run .*pytest\.txt"):
        run_suites(_run(images, tmp_path / "out"), engine, None, checkout)
    assert engine.running == {}


def test_an_interrupt_leaves_no_container(
    images: dict[str, Image],
    engine: FakeEngine,
    tmp_path: Path,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> int:
        assert len(engine.running) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(Call, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_suites(_run(images, tmp_path / "out"), engine, None, project)
    assert engine.running == {}


def test_what_pytest_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A docker client of a suite that hangs must not outlive the run."""
    import sys

    from imgbuild.suites import run

    pid = tmp_path / "pid"
    program = (
        "import subprocess, time, pathlib\nchild = subprocess.Popen(['sleep', '300'])\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\ntime.sleep(300)"
    )
    monkeypatch.setattr(run, "TIMEOUT_SECONDS", 2)
    assert Call([sys.executable, "-c", program]).run(tmp_path / "out", Stop()) == -1
    state = Path("/proc", pid.read_text(), "stat")
    deadline = time.monotonic() + 10  # a signalled process takes its time on a busy machine
    while not _ended(state) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _ended(state)


def _ended(state: Path) -> bool:
    try:
        return state.read_text().split()[2] == "Z"
    except OSError:
        return True
