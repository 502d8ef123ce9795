"""What the suite `running` says of a container that does not start."""

import os
from pathlib import Path

import pytest
import stop_times


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
