"""Reading buildx's progress, from recorded builds."""

import base64
import json
from pathlib import Path

import pytest

from imgbuild.engine.progress import (
    BuildEvent,
    Item,
    ProgressParser,
    Remark,
    StepOutput,
    Transfer,
    log_line,
    split_name,
)

SAMPLES = Path(__file__).parent / "samples"
TARGETS = ("tf-2.2-cpu", "tf-2.3-cpu")
VERTEX = "sha256:1"


def read(sample: str, targets: tuple[str, ...] = TARGETS) -> list[Item]:
    parser = ProgressParser(targets)
    lines = (SAMPLES / f"{sample}.rawjson").read_text().splitlines(keepends=True)
    return [item for line in lines for item in parser.feed(line)]


def feed(parser: ProgressParser, **message: object) -> list[Item]:
    return parser.feed(json.dumps(message))


def log(text: bytes, stream: int = 1) -> list[dict[str, object]]:
    return [{"vertex": VERTEX, "stream": stream, "data": base64.b64encode(text).decode()}]


def vertex(**more: object) -> list[dict[str, object]]:
    return [{"digest": VERTEX, "name": "[1/1] RUN x", **more}]


def test_a_shared_step_is_one_step_with_an_event_for_each_target_and_one_output() -> None:
    items = read("ok")
    events = [item for item in items if isinstance(item, BuildEvent)]
    shared = [event for event in events if "[shared 1/2]" in event.step and event.state == "done"]
    assert {event.target for event in shared} == {*TARGETS}
    assert len({event.number for event in shared}) == 1
    planned = [item for item in items if isinstance(item, BuildEvent) and item.state == "planned"]
    assert len(planned) == len(set(planned))
    assert {item.target for item in planned if item.step.startswith("[shared 1/2]")} == {*TARGETS}
    lines = [item for item in items if isinstance(item, StepOutput)]
    (compiling,) = [line for line in lines if line.text == "compiling"]
    assert set(compiling.targets) == {*TARGETS}
    assert log_line(compiling).endswith("-cpu and 1 more] #6 compiling")


def test_failure_and_cancellation_differ_and_lines_of_buildx_itself_are_remarks() -> None:
    items = read("fail", ("tf-2.2-cpu", "bad"))
    ends = {
        item.target: item.state
        for item in items
        if isinstance(item, BuildEvent) and "horovod" in item.step
    }
    assert ends == {"bad": "failed", "tf-2.2-cpu": "cancelled"}
    remarks = [item.text for item in items if isinstance(item, Remark)]
    assert remarks[-1].startswith("ERROR: target bad: failed to solve: ")


@pytest.mark.parametrize(
    "line",
    [
        "\n",
        "{",
        "[]",
        "null",
        '{"vertexes": 3}',
        '{"vertexes": [{}]}',
        '{"vertexes": [{"digest": "a", "name": 7}]}',
        '{"vertexes": [{"digest": "a", "name": "x", "started": "yesterday", "completed": "now"}]}',
        '{"logs": [{"vertex": "a", "data": "not base64!"}]}',
        '{"statuses": [null]}',
        "\x00\x1b[1m",
    ],
)
def test_a_malformed_line_is_at_most_a_remark(line: str) -> None:
    assert all(isinstance(item, Remark) for item in ProgressParser(TARGETS).feed(line))


def test_output_is_joined_to_lines_for_each_stream() -> None:
    parser = ProgressParser(["one"])
    feed(parser, vertexes=vertex(started="2026-01-01T00:00:00Z"))
    assert feed(parser, logs=log("hé".encode()[:2])) == []
    assert feed(parser, logs=log(b"error", 2)) == []
    (line,) = feed(parser, logs=log("hé".encode()[2:] + b" 10%\r llo\nrest"))
    assert isinstance(line, StepOutput)
    assert line.text == " llo", "what a progress bar overwrote is gone"
    ended = feed(parser, vertexes=vertex(completed="2026-01-01T00:00:01Z"))
    assert [item.text for item in ended if isinstance(item, StepOutput)] == ["error", "rest"]


def test_a_state_is_reported_once_and_a_warning_is_a_remark() -> None:
    parser = ProgressParser(["one"])
    planned, running = feed(parser, vertexes=vertex(started="2026-01-01T00:00:00Z"))
    assert planned == BuildEvent("one", "[1/1] RUN x", "planned", number=1)
    assert running == BuildEvent("one", "[1/1] RUN x", "running", number=1)
    assert feed(parser, vertexes=vertex(started="2026-01-01T00:00:00Z")) == []
    (failed,) = feed(parser, vertexes=vertex(error="context canceled by the program: exit code: 1"))
    assert isinstance(failed, BuildEvent)
    assert failed.state == "failed"
    text = base64.b64encode(b"JSON arguments recommended").decode()
    (warning,) = feed(parser, warnings=[{"vertex": VERTEX, "short": text}])
    assert warning == Remark("warning: JSON arguments recommended")


def transfer(parser: ProgressParser, **status: object) -> list[Item]:
    return feed(parser, statuses=[{"vertex": VERTEX, "id": "sha256:a", **status}])


def test_bytes_are_reported_when_they_have_grown() -> None:
    parser = ProgressParser(["one"])
    feed(parser, vertexes=vertex())
    assert transfer(parser, current=0, total=9) == []
    assert transfer(parser, current=3, total=9) == [Transfer(("one",), 1, "sha256:a", 3)]
    assert transfer(parser, current=3, total=9) == []
    assert transfer(parser, current=2, total=9) == []
    assert transfer(parser, current=9, total=9)[:1] == [Transfer(("one",), 1, "sha256:a", 9)]


@pytest.mark.parametrize(
    ("name", "target", "step"),
    [
        ("[tf-2_2-cpu horovod 3/4] RUN  make\n -j", "tf-2.2-cpu", "[horovod 3/4] RUN make -j"),
        ("[tf-2_2-cpu] exporting to image", "tf-2.2-cpu", "exporting to image"),
        ("[tf-2_2-cpu internal] load x", "tf-2.2-cpu", "[internal] load x"),
        ("[internal] load local bake definitions", None, "[internal] load local bake definitions"),
        ("[other 1/2] RUN x", None, "[other 1/2] RUN x"),
        ("no brackets", None, "no brackets"),
    ],
)
def test_a_vertex_name_is_split(name: str, target: str | None, step: str) -> None:
    assert split_name(name, TARGETS) == (target, step)


@pytest.mark.parametrize(
    "step", ["importing cache manifest from h/c:x", "exporting cache to registry"]
)
def test_a_cache_that_cannot_be_read_or_written_fails_no_build_and_is_in_the_log(step: str) -> None:
    parser = ProgressParser(["one"])
    ended = {"started": "2026-01-01T00:00:00Z", "completed": "2026-01-01T00:00:02Z"}
    said = [{"digest": VERTEX, "name": step, "error": "h/c:x: not found", **ended}]
    planned, remark, event = feed(parser, vertexes=said)
    assert isinstance(remark, Remark)
    assert log_line(remark) == f"warning: {step}: h/c:x: not found"
    assert isinstance(planned, BuildEvent)
    assert event == BuildEvent("one", step, "done", 2.0, 1)
    (failed,) = feed(parser, vertexes=[{**said[0], "name": "[1/1] RUN x", "digest": "sha256:2"}])[
        1:
    ]
    assert isinstance(failed, BuildEvent)
    assert failed.state == "failed"
