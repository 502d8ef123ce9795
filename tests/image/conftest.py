"""Options and fixtures of the in-image suites.

A suite is a file: the suite `horovod` is `test_horovod.py`. The container comes from testinfra's
`--hosts`, what it must be from `--expect`.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from channel import SHELLS, use_channels
from container import Container
from expectation import KERAS_2, Expectation, ExpectationError, read_expectation
from gpu_libraries import opened_sonames
from gpu_machine import Needs, device_faults, unusable
from lab import Lab, open_lab
from limits import EMULATED, Patience
from out_of_time import OUT_OF_TIME
from program_copies import copy_programs, remove_programs
from result_stream import result_stream
from run_modes import NO_CROSS_MEMORY
from skip_reasons import NO_DRIVER, forbidden, no_import, skip

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import FrameType

    from container import Host, Ran

SEE = "see tests/image/README.md"
EXPECTATION = pytest.StashKey[Expectation]()
SUITE, GPU_SUITE = "test_", "test_gpu_"


# Before testinfra reads --hosts.
use_channels()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--expect FILE`, `--no-gpu REASON`, `--gpus-offered` and `--emulated`."""
    group = parser.getgroup("imgbuild")
    group.addoption("--expect", metavar="FILE", help="what the image must be, as JSON")
    group.addoption("--no-gpu", metavar="REASON", help="why the container was given no GPU")
    offered = "the engine offers GPUs: that none can be asked is a failure"
    group.addoption("--gpus-offered", action="store_true", help=offered)
    slow = "the image's processor is emulated, so everything may take longer"
    group.addoption("--emulated", action="store_true", help=slow)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks that tie a test to some images; write results to the pipe.

    SIGTERM ends a run as Ctrl-C does, so that what the suites started is removed.
    """
    config.addinivalue_line("markers", "pinned(component): only for images that pin it")
    config.addinivalue_line("markers", "since(tensorflow): only for this version and newer")
    config.addinivalue_line("markers", "before(tensorflow): only for older versions than this")
    config.addinivalue_line("markers", "packaged(name, …): only for images with one of them")
    config.addinivalue_line("markers", "in_version(name, version): only with it in this version")
    config.addinivalue_line("markers", "with_mpi: only for images that have MPI, and Horovod")
    config.addinivalue_line("markers", "cuda_from(origin): only for images whose CUDA is of there")
    if config.getoption("--emulated"):
        Patience.factor = EMULATED
    if plugin := result_stream():
        config.pluginmanager.register(plugin)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not stop the clean-up
    raise KeyboardInterrupt


def pytest_unconfigure() -> None:
    """Close the shells in the containers, and with them their docker clients."""
    SHELLS.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Refuse to start without both options: exit code 4 and one line, not an error a test.

    Without `--hosts` testinfra would take the local machine and judge the wrong thing.
    """
    expectation_of(session.config)
    if session.config.getoption("--hosts") is None:
        raise pytest.UsageError(f"the in-image suites need --hosts=docker://CONTAINER ({SEE})")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the GPU suites out of an image without CUDA: it has no need of them."""
    if collection_path.name.startswith(GPU_SUITE) and expectation_of(config).variant != "gpu":
        return True
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test a pin, the launcher and a library that the expectation names.

    So a check that this image has no need of does not exist, where a skip would look like one
    that was left out.
    """
    expect = expectation_of(metafunc.config)
    if "component" in metafunc.fixturenames:
        metafunc.parametrize("component", sorted(expect.pins))
    if "launcher" in metafunc.fixturenames:
        metafunc.parametrize("launcher", launchers(expect), scope="module")
    if "requested_package" in metafunc.fixturenames:
        metafunc.parametrize("requested_package", sorted(expect.requested))
    if "soname" in metafunc.fixturenames:
        metafunc.parametrize("soname", opened_sonames(expect.tensorflow_minor, expect.gpu["cuda"]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests of what this image does not pin, know or have."""
    expect = expectation_of(config)
    items[:] = [item for item in items if _concerns(expect, item)]


def _has_version(expect: Expectation, name: str, version: str) -> bool:
    """Return whether a package has this version, which an extension can have changed."""
    return expect.packages.get(name) == version


def _concerns(expect: Expectation, item: pytest.Item) -> bool:
    """Return whether a test's marks, and its suite's constants, leave it to this image."""
    suite = vars(getattr(item, "module", None) or object)
    texts = [suite.get("SINCE", "0"), *(mark.args[0] for mark in item.iter_markers("since"))]
    since = [tuple(map(int, text.split("."))) for text in texts]
    before = [tuple(map(int, m.args[0].split("."))) for m in item.iter_markers("before")]
    with_mpi = suite.get("WITH_MPI", False) or any(item.iter_markers("with_mpi"))
    return (
        not (with_mpi and expect.mpi_flavour is None)
        and not (suite.get("OF_EXTENSIONS", False) and not expect.requested)
        and all(mark.args[0] in expect.pins for mark in item.iter_markers("pinned"))
        and all(expect.tensorflow_minor >= version for version in since)
        and all(expect.tensorflow_minor < version for version in before)
        and all(expect.has(*mark.args) for mark in item.iter_markers("packaged"))
        and all(_has_version(expect, *mark.args) for mark in item.iter_markers("in_version"))
        and all(mark.args[0] in cuda_origins(expect) for mark in item.iter_markers("cuda_from"))
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a failure of every skip but those of `skip_reasons.py`; say which limit was reached."""
    report = yield
    if call.excinfo and isinstance(late := call.excinfo.value, subprocess.TimeoutExpired):
        command = " ".join(late.cmd[:2])
        report.longrepr = f"{OUT_OF_TIME}{command} did not end within {late.timeout:.1f} s"
    if report.skipped:
        reason = str(getattr(call.excinfo and call.excinfo.value, "msg", "no reason"))
        if forbidden(item.path.stem.removeprefix(SUITE), reason):
            vars(report).pop("wasxfail", None)
            report.outcome = "failed"
            report.longrepr = f"skipped, which no check may be for this reason: {reason}"
    return report


def expectation_of(config: pytest.Config) -> Expectation:
    """Return what `--expect` says, read once a session."""
    if EXPECTATION not in config.stash:
        config.stash[EXPECTATION] = _read(config.getoption("--expect"))
    return config.stash[EXPECTATION]


def _read(file: str | None) -> Expectation:
    if file is None:
        raise pytest.UsageError(f"the in-image suites need --expect FILE ({SEE})")
    try:
        return read_expectation(Path(file))
    except ExpectationError as error:
        raise pytest.UsageError(f"--expect {error}") from error


def cuda_origins(expect: Expectation) -> set[str]:
    """Return where CUDA comes from: NVIDIA's repositories, whose packages are held, or the index.

    An image without CUDA has neither.
    """
    found = {"index"} if "kernels" in expect.gpu else set[str]()
    return found | ({"apt"} if expect.held else set())


def launchers(expect: Expectation) -> list[str]:
    """Return how two ranks are started: by horovodrun, which starts mpirun, where the image has it.

    It came with Horovod 0.16 and knows few MPI flavours, so the matrix says where it is. Where
    Keras is Keras 3 and tf-keras is there, too, they are started once more with that.
    """
    launcher = "horovodrun" if expect.horovodrun else "mpirun"
    return [launcher, *([f"{launcher}, {KERAS_2}"] if expect.has_keras_2 else [])]


@pytest.fixture(scope="session")
def expect(request: pytest.FixtureRequest) -> Expectation:
    """Return what the image must be."""
    return expectation_of(request.config)


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the seccomp profile of an engine that lets no process read another's memory."""
    file = tmp_path_factory.mktemp("seccomp") / "profile.json"
    file.write_text(json.dumps(NO_CROSS_MEMORY), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def copies() -> Iterator[dict[str, Container]]:
    """Give the containers of this session by name, and clean them up at its end."""
    known: dict[str, Container] = {}
    yield known
    for container in known.values():
        remove_programs(container.host, container.programs)


@pytest.fixture(scope="module")
def container(host: Host, copies: dict[str, Container]) -> Container:
    """Return the container under test, with the programs copied into it once a session."""
    key = repr(host)
    if key not in copies:
        copies[key] = Container(host, copy_programs(host))
    return copies[key]


@pytest.fixture(scope="module")
def lab(pytestconfig: pytest.Config, expect: Expectation) -> Iterator[Lab]:
    """Give the means to start further containers of this image; all are removed at the end."""
    opened = open_lab(pytestconfig.getoption("--hosts"), needs_stub=expect.needs_driver)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def driver(container: Container) -> Ran:
    """Ask the driver that the container was given, if any, for itself and its GPUs."""
    return container.program("driver.py", seconds=60)


@pytest.fixture(scope="module")
def importable(driver: Ran, expect: Expectation, pytestconfig: pytest.Config) -> None:
    """Skip where this TensorFlow cannot be imported: it names the driver's library."""
    offered = pytestconfig.getoption("--gpus-offered")
    if expect.needs_driver and driver.json["error"] and not offered:
        skip(no_import(expect.tensorflow_minor))


@pytest.fixture(scope="module")
def gpu_needs(expect: Expectation) -> Needs:
    """Return what driver and GPU this image needs."""
    return Needs(
        expect.pins["cuda"], expect.gpu["driver"], expect.gpu["newest"], expect.gpu["oldest"]
    )


@pytest.fixture(scope="module")
def faulty_gpus(driver: Ran, gpu_needs: Needs, pytestconfig: pytest.Config) -> list[str | None]:
    """Return why each GPU is of no use, None for one that is; skip where none or no driver is.

    Where the engine offers GPUs, nothing but their age and the driver's excuses an image that does
    not see them.
    """
    reason = unusable(driver.json, gpu_needs, pytestconfig.getoption("--no-gpu"))
    if reason and reason.startswith(NO_DRIVER) and pytestconfig.getoption("--gpus-offered"):
        pytest.fail(f"the engine offers GPUs, the image sees none: {reason}", pytrace=False)
    if reason:
        skip(reason)
    return device_faults(driver.json["devices"], gpu_needs)


@pytest.fixture(scope="module")
def gpus(faulty_gpus: list[str | None]) -> list[int]:
    """Return the numbers of the GPUs that this image can use, at least one."""
    return [number for number, fault in enumerate(faulty_gpus) if fault is None]
