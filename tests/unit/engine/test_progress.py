"""Reading buildx's progress, from recorded builds."""

import base64
import json
from dataclasses import replace
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


def read(sample: str) -> list[Item]:
    parser = ProgressParser(TARGETS)
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
    shared = [x for x in items if isinstance(x, BuildEvent) and "[shared 1/2]" in x.step]
    for state in ("planned", "done"):
        events = [event for event in shared if event.state == state]
        assert sorted(str(event.target) for event in events) == [*TARGETS]
        assert len({event.number for event in events}) == 1
    (line,) = [x for x in items if isinstance(x, StepOutput) and x.text == "compiling"]
    assert set(line.targets) == {*TARGETS}
    assert log_line(line).endswith("-cpu and 1 more] #6 compiling")


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
    assert running == replace(planned, state="running")
    assert feed(parser, vertexes=vertex(started="2026-01-01T00:00:00Z")) == []
    (failed,) = feed(parser, vertexes=vertex(error="context canceled by the program: exit code: 1"))
    assert isinstance(failed, BuildEvent)
    assert failed.state == "failed"
    text = base64.b64encode(b"JSON arguments recommended").decode()
    (warning,) = feed(parser, warnings=[{"vertex": VERTEX, "short": text}])
    assert warning == Remark("warning: JSON arguments recommended")


def test_bytes_are_reported_when_they_have_grown() -> None:
    parser = ProgressParser(["one"])
    feed(parser, vertexes=vertex())
    told: list[Item] = []
    for current in (0, 3, 3, 2, 9):
        status = {"vertex": VERTEX, "id": "sha256:a", "current": current, "total": 9}
        told += feed(parser, statuses=[status])
    assert told == [Transfer(("one",), 1, "sha256:a", current) for current in (3, 9)]


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
    times = {"started": "2026-01-01T00:00:00Z", "completed": "2026-01-01T00:00:02Z"}
    said = {"digest": VERTEX, "name": step, "error": "h/c:x: not found", **times}
    _, remark, event = feed(parser, vertexes=[said])
    assert log_line(remark) == f"warning: {step}: h/c:x: not found"
    assert event == BuildEvent("one", step, "done", 2.0, 1)
