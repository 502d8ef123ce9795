"""Standard error as JSON: whatever is written there, each line is an object."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from project_copy import NO_ENGINE, imgbuild

from imgbuild.build.display import BuildDisplay
from imgbuild.engine.progress import BakeBegun, BuildEvent, Transfer
from imgbuild.events import ImagesPlanned, ImageState, State
from imgbuild.json_log import JsonLog, requested

RUN = "[horovod 2/2] RUN make"


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    for one in found:
        assert one.pop("time").endswith("Z")
    return found


def test_json_is_requested_by_the_last_word_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requested(["build", "--log-format", "json"])
    assert requested(["build", "--log-format=json"])
    assert not requested(["build", "--log-format"])
    assert not requested(["build", "json"])
    monkeypatch.setenv("IMGBUILD_LOG_FORMAT", "json")
    assert requested(["build"])
    assert not requested(["build", "--log-format", "text"])


def test_every_line_written_is_a_message_without_logins() -> None:
    stream = io.StringIO()
    log = JsonLog(stream)
    print("two\nlines", file=log)
    log.write("\nhalf ")
    log.write('"a" line\n\x1b[1m')
    print(" at http://token@host.example/y", file=log)
    log.emit("step", step="RUN curl https://name:secret@host.example/x")
    log.close()
    *messages, step = objects(stream)
    texts = [one["text"] for one in messages]
    assert texts == ["two", "lines", 'half "a" line', "\x1b[1m at http://host.example/y"]
    assert step["step"] == "RUN curl https://host.example/x"


def test_a_build_is_objects() -> None:
    stream = io.StringIO()
    now = [0.0]
    with BuildDisplay(["a", "b"], JsonLog(stream), lambda: now[0]) as display:
        display.on_event(ImagesPlanned({"a": "build", "b": "nothing"}))
        display.on_event(ImageState("b", State.UP_TO_DATE))
        display.on_event(BakeBegun(("a",)))
        display.on_event(BuildEvent("a", RUN, "running", number=1))
        display.on_event(BuildEvent("a", "[internal] load", "running", number=2))
        display.on_event(Transfer(("a",), 1, "layer", 7))
        now[0] = 20.0
        display.beat()
        display.on_event(BuildEvent("a", RUN, "failed", 20.0, 1, "exit code: 1"))
        display.on_event(ImageState("a", State.FAILED, error="Building a failed"))
    step = {"event": "step", "image": "a", "step": RUN, "stage": "horovod"}
    late = {"seconds": 20.0}
    progress = {"event": "progress", **late}
    failed = {"event": "image", "image": "a", "state": "failed", "text": RUN, "bytes": 7, **late}
    assert objects(stream) == [
        {"event": "image", "image": "b", "state": "up to date", "seconds": 0.0},
        {**step, "state": "running"},
        {"event": "image", "image": "a", "state": "building", "seconds": 0.0},
        {**progress, "done": 0, "images": 1, "building": 1, "testing": 0, "percent": 0.0},
        {**step, "state": "failed", "seconds": 20.0, "bytes": 7, "error": "exit code: 1"},
        {**failed, "error": "exit code: 1"},
        {**failed, "error": "Building a failed"},
        {"event": "summary", "images": 2, "tagged": 0, "up_to_date": 1, "failed": 1, **late},
    ]


def test_errors_and_warnings_are_objects_too(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("{}")
    own = {**NO_ENGINE, "IMGBUILD_SETTINGS": f"{tmp_path}/settings.yaml"}
    own["IMGBUILD_PROJECT"] = str(ROOT)

    def run(*words: str, **variables: str) -> tuple[int, list[dict[str, Any]]]:
        result = imgbuild(ROOT, "build", *words, env={**own, **variables})
        assert result.stdout == ""
        return result.returncode, objects(io.StringIO(result.stderr))

    code, said = run("--nonsense", "--log-format", "json")
    assert (code, any("--nonsense" in one["text"] for one in said)) == (2, True)
    documented = ("--tf", "2.1", "--gpu", "--as-documented", "--plan")
    code, said = run(*documented, IMGBUILD_LOG_FORMAT="json")
    assert [one["event"] for one in said] == ["message", "message", "error"]
    assert "cuda 10.0 in place of 10.1" in said[0]["text"]
    assert (code, said[-1]["exit_code"]) == (3, 3)
