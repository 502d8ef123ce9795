"""What a failed build is called, and whose fault it is."""

from pathlib import Path

import pytest

from imgbuild.engine.failure import BuildFailedError, BuildRecord, find_fault
from imgbuild.engine.progress import BuildEvent, Item, Remark, StepOutput

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


def failed(error: str = "exit code: 1") -> BuildEvent:
    return BuildEvent("a", "[hvd 1/2] RUN make", "failed", number=3, error=error)


def exported(target: str) -> BuildEvent:
    return BuildEvent(target, "exporting to image", "done")


def reported(targets: str, *items: Item) -> BuildFailedError:
    record = BuildRecord(targets.split())
    for item in items:
        record.add(item)
    return record.error(LOG)


IDS = {"exporting manifest": f"sha256:{'1' * 64}", "exporting config": f"sha256:{'2' * 64}"}


@pytest.mark.parametrize(
    ("step", "written", "image_id"),
    [
        ("exporting to image", {"writing image": f"sha256:{ZEROS}"}, f"sha256:{ZEROS}"),
        ("exporting to image", IDS, IDS["exporting manifest"]),
        # Of another builder than the engine's own, by what the engine loads.
        ("exporting to docker image format", IDS, IDS["exporting config"]),
        ("exporting to oci image format", IDS, IDS["exporting manifest"]),
    ],
    ids=["graph driver", "containerd", "docker format", "oci format"],
)
def test_the_id_of_an_image_is_what_its_store_goes_by(
    step: str, written: dict[str, str], image_id: str
) -> None:
    record = BuildRecord(["a"])
    for words, digest in written.items():
        record.add(StepOutput(("a",), f"{words} {digest} done", 7))
    assert not record.images, "before the export has ended"
    record.add(BuildEvent("a", step, "done", number=7))
    assert record.images == {"a": image_id}


UNRESOLVED = StepOutput(("a",), "Could not resolve host: x", 3)


def test_the_fault_of_the_last_lines_or_the_error_decides_whose_it_is() -> None:
    error = reported("a", UNRESOLVED, failed())
    assert (error.exit_code, "upstream cannot be reached" in str(error)) == (3, True)
    error = reported("a", failed(f"digest mismatch sha256:ff: sha256:{ZEROS}"))
    assert (error.exit_code, "not what was pinned" in str(error)) == (1, True)
    # An early retry is not taken for the fault.
    more = [StepOutput(("a",), f"line {number}", 3) for number in range(12)]
    assert reported("a", UNRESOLVED, *more, failed()).failure.fault is None


def test_finished_failed_and_cancelled_differ_and_at_least_one_target_failed() -> None:
    cancelled = BuildEvent("c", "[hvd 1/2] RUN make", "cancelled")
    failure = reported("a b c", exported("b"), failed(), cancelled).failure
    assert (failure.failed, failure.cancelled) == (("a",), ("c",))
    failure = reported("a b", exported("b")).failure
    assert (failure.failed, failure.error) == (("a",), "buildx said nothing")


def test_a_crash_of_buildx_is_told_by_its_first_line() -> None:
    trace = (Remark(text) for text in ("panic: send on closed channel", "goroutine 9 [running]:"))
    assert reported("a", *trace).failure.error == "panic: send on closed channel"


def test_an_engine_that_stops_after_the_last_export_has_failed_them_all() -> None:
    words = Remark("ERROR: failed to solve: Internal: database not open")
    failure = reported("a b", exported("a"), exported("b"), words).failure
    assert (failure.failed, failure.cancelled) == (("a", "b"), ())
