"""Suite `tensorboard`: the image's TensorBoard shows what its TensorFlow wrote, and stops cleanly.

TensorBoard is a package of its own whose newest version pip would happily put beside an old
TensorFlow; what shows that the two fit is an event file on its way through both.
"""

from __future__ import annotations

import signal
import struct
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

pytestmark = pytest.mark.usefixtures("importable")
SECONDS = 120
STEPS = range(4)
# The tags of programs/events_write.py.
SCALARS = {
    "loss": [1.0 / (step + 3) for step in STEPS],
    "rate/scaled": [-1e-7 * (step + 1) for step in STEPS],
}


@pytest.fixture(scope="module")
def apis(expect: Expectation) -> tuple[str, ...]:
    """Return the ways this version writes events; each becomes a run of its name."""
    return ("v1", "v2") if expect.tensorflow_minor >= (1, 14) else ("v1", "contrib")


@pytest.fixture(scope="module")
def logdir(container: Container) -> str:
    """Return a fresh folder for event files."""
    return container.fresh_folder()


@pytest.fixture(scope="module")
def written(container: Container, logdir: str, apis: tuple[str, ...]) -> Ran:
    """Write event files with the image's TensorFlow."""
    return container.program("events_write.py", logdir, *apis, seconds=SECONDS)


@pytest.fixture(scope="module")
def served(container: Container, logdir: str, written: Ran, apis: tuple[str, ...]) -> Ran:
    """Serve the event files, ask for everything, stop the server; without files, say why."""
    if written.failed:
        return written
    points = len(apis) * len(SCALARS) * len(STEPS)
    return container.program("tensorboard_ask.py", logdir, str(points), seconds=SECONDS)


def test_tensorflow_writes_one_event_file_a_run(written: Ran, apis: tuple[str, ...]) -> None:
    """Each API of tf.summary leaves one event file."""
    counts = {api: len(files) for api, files in written.json.items()}
    assert counts == dict.fromkeys(apis, 1)


def test_tensorboard_shows_the_runs(served: Ran, apis: tuple[str, ...]) -> None:
    """All runs are there, and no other."""
    assert sorted(served.json["runs"]) == sorted(apis)


def test_tensorboard_shows_the_tags(served: Ran, apis: tuple[str, ...]) -> None:
    """Each run has the tags that were written, and no other."""
    tags = {run: sorted(found) for run, found in served.json["scalars"].items()}
    assert tags == {api: sorted(SCALARS) for api in apis}


@pytest.mark.parametrize("tag", SCALARS)
def test_tensorboard_shows_the_values(served: Ran, apis: tuple[str, ...], tag: str) -> None:
    """Every step is there with the value that was written, exact to the last bit of a float32."""
    points = [[step, float32(value)] for step, value in zip(STEPS, SCALARS[tag], strict=True)]
    for api in apis:
        found = served.json["scalars"].get(api, {}).get(tag)
        assert found == points, f"{tag} in the run {api}: {found}, written: {points}"


def test_tensorboard_stops_on_sigterm(served: Ran) -> None:
    """It goes within seconds of the signal, so that `docker stop` need not wait and kill."""
    end = served.json["end"]
    assert end["exit_code"] is not None, f"still running {end['seconds']} s after SIGTERM"
    assert end["exit_code"] in (0, -signal.SIGTERM), f"ended with {end['exit_code']} on SIGTERM"


def test_tensorboard_leaves_no_process(served: Ran) -> None:
    """What it started ended with it; that it was seen while running shows that the search works."""
    assert served.json["running"], "TensorBoard's own process was not found in the container"
    assert served.json["left"] == [], f"left behind: {served.json['left']}"


def float32(value: float) -> float:
    """Return the float32 nearest to `value`."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
