"""What a failed build is called, and whose fault it is."""

from pathlib import Path

import pytest

from imgbuild.engine.failure import (
    BuildFailedError,
    BuildRecord,
    BuildStoppedError,
    find_fault,
)
from imgbuild.engine.progress import BuildEvent, Remark, StepOutput

LOG = Path("build.log")
ZEROS = "0" * 64


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"digest mismatch sha256:f886: sha256:{ZEROS}", "checksum"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "checksum"),
        ("E: Failed to fetch http://archive.example/x  Hash Sum mismatch", "checksum"),
        ("sha256sum: WARNING: 1 computed checksum did NOT match", "checksum"),
        ("dd: error writing '/t/x': No space left on device", "disk"),
        ("ERROR: Cannot connect to the Docker daemon at unix:///run/x.sock.", "engine"),
        ("ERROR: target a: failed to solve: Unavailable: error reading from server: EOF", "engine"),
        ("failed to create endpoint abc on network bridge: no such device", "engine"),
        ('Get "https://x.example/": x509: certificate signed by unknown authority', "certificate"),
        ('Get "http://x.invalid/": dial tcp: lookup x.invalid: no such host', "unreachable"),
        ("curl: (28) Connection timed out after 30001 milliseconds", "unreachable"),
        ("NewConnectionError: Failed to establish a new connection", "unreachable"),
    ],
)
def test_known_faults_are_recognised(line: str, kind: str) -> None:
    found = find_fault(["compiling", line])
    assert found is not None
    assert found.kind == kind
    assert found.of_machine is (kind != "checksum")
    assert found.of_all is (kind in {"disk", "engine"})


def test_a_full_disk_is_the_cause_of_what_follows_and_other_failures_are_no_known_fault() -> None:
    found = find_fault(["curl: (6) Could not resolve host: x", "No space left on device"])
    assert found is not None
    assert found.kind == "disk"
    assert find_fault(["error: no mpi.h", "make: *** [all] Error 1", "exit code: 2"]) is None


def failed(target: str = "a", error: str = "exit code: 1") -> BuildEvent:
    return BuildEvent(target, "[hvd 1/2] RUN make", "failed", number=3, error=error)


def test_an_early_retry_is_not_taken_for_the_fault() -> None:
    record = BuildRecord(["a"])
    for text in ("Could not resolve host: x", *(f"line {number}" for number in range(12))):
        record.add(StepOutput(("a",), text, 3))
    record.add(failed())
    assert record.error(LOG).failure.fault is None


def test_the_fault_of_the_last_lines_or_the_error_decides_whose_it_is() -> None:
    record = BuildRecord(["a"])
    record.add(StepOutput(("a",), "Could not resolve host: x", 3))
    record.add(failed())
    error = record.error(LOG)
    assert (type(error), error.exit_code) == (BuildStoppedError, 3)
    assert "upstream cannot be reached" in str(error)
    record = BuildRecord(["a"])
    record.add(failed(error=f"digest mismatch sha256:ff: sha256:{ZEROS}"))
    error = record.error(LOG)
    assert (type(error), error.exit_code) == (BuildFailedError, 1)
    assert "not what was pinned" in str(error)


def test_finished_failed_and_cancelled_differ() -> None:
    record = BuildRecord(["a", "b", "c"])
    record.add(BuildEvent("b", "exporting to image", "done"))
    record.add(failed())
    record.add(BuildEvent("c", "[hvd 1/2] RUN make", "cancelled"))
    failure = record.error(LOG).failure
    assert (failure.failed, failure.cancelled) == (("a",), ("c",))


def test_a_failure_outside_any_step_is_taken_from_the_final_words() -> None:
    record = BuildRecord(["tf-2.2-cpu", "b"])
    record.add(Remark("ERROR: target tf-2_2-cpu: failed to solve: dockerfile parse error"))
    failure = record.error(LOG).failure
    assert failure.failed == ("tf-2.2-cpu",)
    assert failure.error == "dockerfile parse error"


def test_at_least_one_target_failed() -> None:
    record = BuildRecord(["a", "b"])
    record.add(BuildEvent("b", "exporting to image", "done"))
    failure = record.error(LOG).failure
    assert failure.failed == ("a",)
    assert failure.error == "buildx said nothing"


def test_an_engine_that_stops_after_the_last_export_has_failed_them_all() -> None:
    record = BuildRecord(["a", "b"])
    for target in ("a", "b"):
        record.add(BuildEvent(target, "exporting to image", "done"))
    record.add(Remark("ERROR: failed to solve: Internal: database not open"))
    failure = record.error(LOG).failure
    assert (failure.failed, failure.cancelled) == (("a", "b"), ())
    assert "stopped during the build" in str(failure)


def test_the_paragraph_does_not_repeat_the_command() -> None:
    record = BuildRecord(["a"])
    record.add(
        failed(error='process "/bin/sh -c make" did not complete successfully: exit code: 2')
    )
    assert "failed in the step '[hvd 1/2] RUN make': exit code: 2." in str(
        record.error(LOG).failure
    )
