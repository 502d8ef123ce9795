"""What a failed build is called, and whose fault it is."""

import base64
import json
from pathlib import Path

import pytest

from imgbuild.engine.failure import BuildFailedError, build_error, find_fault
from imgbuild.engine.steps import BuildSteps

LOG = Path("build.log")
ZEROS = "0" * 64


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"digest mismatch sha256:f886: sha256:{ZEROS}", "checksum"),
        ("sha256sum: WARNING: 1 computed checksum did NOT match", "checksum"),
        ("invalid progress mode rawjson", "buildx"),
        ("invalid output path: stat /docker/overlay2/x: no such file", "cache"),
        ("dd: error writing '/t/x': No space left on device", "disk"),
        ("ERROR: Cannot connect to the Docker daemon at unix:///run/x.sock.", "engine"),
        ("ERROR: target a: failed to solve: Unavailable: error reading from server: EOF", "engine"),
        ("error reading from server: read unix @->/x: read: connection reset by peer", "engine"),
        ("DeadlineExceeded: no active session for pmk: context deadline exceeded", "session"),
        ("ERROR: target a: Canceled: grpc: the client connection is closing", "session"),
        ('Get "https://x.example/": x509: certificate signed by unknown authority', "certificate"),
        ('Get "http://x.invalid/": dial tcp: lookup x.invalid: no such host', "unreachable"),
        ("curl: (28) Connection timed out after 30001 milliseconds", "unreachable"),
        ('process "sh -c timeout 900 sh x" did not complete: exit code: 124', "unreachable"),
    ],
)
def test_known_faults_are_recognised(line: str, kind: str) -> None:
    found = find_fault(["compiling", line])
    assert found is not None
    assert found.kind == kind
    assert found.of_machine is (kind != "checksum")
    assert found.stops_all is (kind in {"disk", "engine", "buildx"})


def test_a_full_disk_is_the_cause_of_what_follows_and_other_failures_are_no_known_fault() -> None:
    found = find_fault(["curl: (6) Could not resolve host: x", "No space left on device"])
    assert found is not None
    assert found.kind == "disk"
    assert find_fault(["error: no mpi.h", "make: *** [all] Error 1", "exit code: 2"]) is None


def reported(
    *lines: str, error: str = "exit code: 1", remarks: tuple[str, ...] = ()
) -> BuildFailedError:
    """Return the error of a build in which a step wrote these lines, and failed unless none did."""
    steps = BuildSteps(("a",), lambda _: None, 0)
    if error:
        data = base64.b64encode("".join(f"{line}\n" for line in lines).encode()).decode()
        vertex = {"digest": "sha256:1", "name": "[hvd 1/2] RUN make", "error": error}
        log = {"vertex": "sha256:1", "data": data}
        steps.feed(json.dumps({"vertexes": [vertex], "logs": [log]}), 0)
    for remark in remarks:
        steps.feed(remark, 0)
    return build_error("a", steps, LOG)


UNRESOLVED = "Could not resolve host: x"


def test_the_fault_of_the_last_lines_or_the_error_decides_whose_it_is() -> None:
    error = reported(UNRESOLVED)
    assert (error.exit_code, "upstream cannot be reached" in str(error)) == (3, True)
    error = reported(error=f"digest mismatch sha256:ff: sha256:{ZEROS}")
    assert (error.exit_code, "pinned hash" in str(error)) == (1, True)
    # An early retry is not taken for the fault.
    more = [f"line {number}" for number in range(12)]
    assert reported(UNRESOLVED, *more).fault is None


def test_a_build_that_says_nothing_has_failed_too() -> None:
    assert reported(error="").cause == "buildx printed nothing"


def test_a_crash_of_buildx_is_told_by_its_first_line() -> None:
    trace = ("panic: send on closed channel", "goroutine 9 [running]:")
    error = reported(error="", remarks=trace)
    assert error.cause == "panic: send on closed channel"
