"""How the suite `running` stops containers, and what it says of one that does not start."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
import stop_times
from stop_times import ALONE, Stop, stopped

if TYPE_CHECKING:
    from pathlib import Path


def test_all_that_runs_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.Barrier(len(ALONE) + 1, timeout=30)

    def stop(what: str) -> Stop:
        others.wait()
        return Stop(0.2, len(what))

    monkeypatch.setattr(stop_times, "_start", lambda _lab, what, _flavour: what)
    monkeypatch.setattr(stop_times, "_stop", stop)
    lab: Any = None
    ends = {what: end.exit_code for what, end in stopped(lab, "openmpi").items()}
    assert ends == {what: len(what) for what in (*ALONE, "mpirun")}


@pytest.mark.parametrize("then", ["", "exec sleep 60"], ids=["ends", "waits"])
def test_what_does_not_start_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, then: str
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho ready; echo mpirun: no such file; {then}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(stop_times, "SECONDS_TO_START", 0.5)
    assert stop_times._ready("container", 1) == "container"
    with pytest.raises(pytest.fail.Exception, match="it says:\nready\nmpirun: no such file"):
        stop_times._ready("container", 2)
