"""Reading buildx's progress, from recorded builds; how long a step may run, by a test's clock."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.project import Project
from imgbuild.engine.steps import GOES_ON, WAITS, BuildSteps, Step

SAMPLES = Path(__file__).parent / "samples"
TARGETS = ("tf-2_2-cpu", "tf-2_3-cpu")
IDS = {"exporting manifest": "1", "exporting config": "2"}
BEGAN = "2026-01-01T00:00:00Z"


class Reader:
    """A build that is read; ``shown`` are its steps when they began or ended."""

    def __init__(self, targets: tuple[str, ...] = ("one",)) -> None:
        self.shown: list[tuple[str, str]] = []
        self.steps = BuildSteps(targets, self.show, 0)
        self.log: list[str] = []

    def show(self, step: Step) -> None:
        self.shown.append((step.name, step.state))

    def vertex(self, number: int = 1, now: float = 0, **more: Any) -> None:
        vertex = {"digest": f"sha256:{number}", "name": f"[x {number}/9] RUN", **more}
        self.feed(now, vertexes=[vertex])

    def writes(self, text: bytes, number: int = 1, now: float = 0, stream: int = 1) -> None:
        data = base64.b64encode(text).decode()
        self.feed(now, logs=[{"vertex": f"sha256:{number}", "stream": stream, "data": data}])

    def feed(self, now: float = 0, **message: object) -> None:
        self.log += self.steps.feed(json.dumps(message), now)


def recorded(sample: str) -> Reader:
    reader = Reader(TARGETS)
    for line in (SAMPLES / f"{sample}.rawjson").read_text().splitlines():
        reader.log += reader.steps.feed(line, 0)
    return reader


def test_a_recorded_build_has_its_steps_without_targets_its_work_and_its_image() -> None:
    reader = recorded("ok")
    names = {name for name, _ in reader.shown}
    assert any(name.startswith("[shared 1/2] ") for name in names)
    assert "exporting to image" in names
    assert not any("tf-2_2-cpu" in name or name.startswith("[internal]") for name in names)
    assert 0.3 < reader.steps.work < 10
    assert reader.steps.image_id == "sha256:" + reader.steps.image_id[7:]  # type: ignore[index]
    assert reader.steps.failed is None
    assert [line for line in reader.log if line.endswith(" compiling")] == ["#6 compiling"]
    assert "#11 exporting to image (done after 0.0 s)" in reader.log


def test_a_recorded_failure_has_its_step_and_last_lines() -> None:
    step = recorded("fail").steps.failed
    assert step is not None
    assert "RUN" in step.name
    assert (len(step.tail), step.tail[-1]) == (20, "line 25")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        '{"vertexes": 3}',
        '{"vertexes": [{}]}',
        '{"vertexes": [{"digest": "a", "name": "x", "started": "yesterday", "completed": "now"}]}',
        '{"logs": [{"vertex": "a", "data": "not base64!"}]}',
        '{"statuses": [null]}',
        "\x00\x1b[1m",
    ],
)
def test_a_malformed_line_is_a_remark(line: str) -> None:
    steps = Reader().steps
    assert steps.feed(line, 0) == [line] == [*steps.remarks]
    assert steps.feed("\n", 0) == []


def test_output_is_joined_to_lines_for_each_stream() -> None:
    reader = Reader()
    reader.vertex(started=BEGAN)
    reader.log.clear()
    reader.writes("hé".encode()[:2])
    reader.writes(b"error", stream=2)
    assert reader.log == []
    reader.writes("hé".encode()[2:] + b" 10%\r llo\nrest")
    assert reader.log == ["#1  llo"], "what a progress bar overwrote is gone"
    reader.vertex(completed=BEGAN)
    assert reader.log[1:3] == ["#1 error", "#1 rest"]


def test_a_state_is_told_once_and_a_warning_is_a_remark() -> None:
    reader = Reader()
    for _ in range(2):
        reader.vertex(started=BEGAN)
    reader.vertex(error="context canceled by the program: exit code: 1")
    assert reader.shown == [("[x 1/9] RUN", "running"), ("[x 1/9] RUN", "failed")]
    text = base64.b64encode(b"JSON arguments recommended").decode()
    reader.feed(warnings=[{"vertex": "sha256:1", "short": text}])
    assert [*reader.steps.remarks] == ["warning: JSON arguments recommended"]


def test_a_step_of_a_stopped_build_has_not_failed() -> None:
    reader = Reader()
    reader.vertex(started=BEGAN, error="process: context canceled")
    assert reader.steps.failed is None


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("[tf-2_2-cpu horovod 3/4] RUN  make\n -j", "[horovod 3/4] RUN make -j"),
        ("[tf-2_2-cpu] exporting to image", "exporting to image"),
        ("[horovod 3/4] RUN make", "[horovod 3/4] RUN make"),
        ("[other 1/2] RUN x", "[other 1/2] RUN x"),
        ("no brackets", "no brackets"),
    ],
)
def test_a_name_has_no_target(name: str, bare: str) -> None:
    reader = Reader(TARGETS)
    reader.vertex(name=name, started=BEGAN)
    assert reader.shown == [(bare, "running")]


def test_buildkits_own_steps_are_shown_only_if_they_fail() -> None:
    reader = Reader()
    reader.vertex(name="[internal] load .dockerignore", started=BEGAN)
    assert reader.shown == []
    reader.vertex(name="[internal] load .dockerignore", error="no")
    assert reader.shown == [("[internal] load .dockerignore", "failed")]


@pytest.mark.parametrize(
    "name", ["importing cache manifest from h/c:x", "exporting cache to registry"]
)
def test_a_cache_that_cannot_be_read_or_written_fails_no_build(name: str) -> None:
    reader = Reader()
    reader.vertex(name=name, error="h/c:x: not found", started=BEGAN, completed=BEGAN)
    assert reader.steps.failed is None
    assert f"warning: {name}: h/c:x: not found" in reader.log


@pytest.mark.parametrize(
    ("name", "words", "image_id"),
    [
        ("exporting to image", {"writing image": "0"}, "0"),
        ("exporting to image", IDS, "1"),
        # Another builder than the engine's own names the image as the engine loads it.
        (
            "exporting to docker image format",
            IDS,
            "2",
        ),
        (
            "exporting to oci image format",
            IDS,
            "1",
        ),
    ],
    ids=["graph driver", "containerd", "docker format", "oci format"],
)
def test_the_id_of_an_image_is_what_its_store_goes_by(
    name: str, words: dict[str, str], image_id: str
) -> None:
    reader = Reader()
    reader.vertex(name=name, started=BEGAN)
    for word, digit in words.items():
        part = {"vertex": "sha256:1", "id": f"{word} sha256:{digit * 64}", "completed": BEGAN}
        reader.feed(statuses=[part])
    assert reader.steps.image_id == f"sha256:{image_id * 64}"


def test_work_is_what_was_neither_cached_nor_there() -> None:
    reader = Reader()
    times: dict[str, Any] = {"started": BEGAN, "completed": "2026-01-01T00:00:05Z"}
    short: dict[str, Any] = {"started": BEGAN, "completed": "2026-01-01T00:00:00.1Z"}
    reader.vertex(1, name="[os 1/1] FROM base:1", **short)
    reader.vertex(2, **times, cached=True)
    reader.vertex(3, **times)
    assert reader.steps.work == 5.0
    reader.vertex(4, name="[os 1/1] FROM base:2", **times)
    assert reader.steps.work == 10.0, "pulling a base is work"


def test_a_step_may_run_up_to_the_limit_and_none_is_no_limit() -> None:
    reader = Reader()
    reader.vertex(2, 5, started=BEGAN)
    reader.vertex(1, 10, started=BEGAN)
    reader.vertex(2, 50, started=BEGAN, completed=BEGAN)
    assert reader.steps.find_overdue(0, 10**9) is None
    assert reader.steps.find_overdue(60, 69.9) is None
    late = reader.steps.find_overdue(60, 70)
    assert late is not None
    assert (late.name, late.error) == ("[x 1/9] RUN", "ran for more than 1m (the limit of a step)")
    assert reader.steps.failed is late


def test_between_steps_and_while_all_wait_a_build_must_say_something() -> None:
    reader = Reader()
    reader.vertex(started=BEGAN)
    reader.writes(f"{WAITS}\n".encode(), now=20)
    reader.steps.feed("loading", 30)
    assert reader.steps.find_overdue(60, 89) is None
    late = reader.steps.find_overdue(60, 90)
    assert late is not None
    assert (late.name, late.state) == ("", "failed")
    assert late.error.startswith("the engine said nothing for more than 1m")


def test_waiting_for_a_place_to_compile_is_not_running() -> None:
    reader = Reader()
    reader.vertex(now=10, started=BEGAN)
    for second in (11, 40, 80, 120):
        reader.writes(f"{WAITS}\n".encode(), now=second)
        assert reader.steps.find_overdue(60, second + 10) is None
    reader.writes(f"{GOES_ON}\n".encode(), now=130)
    assert reader.steps.find_overdue(60, 189) is None
    assert reader.steps.find_overdue(60, 190) is not None


def test_the_words_are_those_of_the_program(project: Project) -> None:
    program = (project.files / "compiling.sh").read_text(encoding="utf-8")
    assert WAITS in program
    assert GOES_ON in program
