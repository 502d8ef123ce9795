"""Suite `tensorboard`: the image's TensorBoard shows what its TensorFlow writes, to whom it should.

TensorBoard is a package of its own whose newest version pip would happily put beside an old
TensorFlow; what shows that the two fit is an event file on its way through both. Two servers run at
once in one container while events are written, a second container asks them, and both are stopped.
"""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from out_of_time import out_of_time
from tensorboard_content import (
    ALL_STEPS,
    ALONE,
    FIRST_STEPS,
    LABELS,
    LATE,
    NODE,
    NOTE_HTML,
    PICTURE,
    SCALARS,
    SPREAD,
    VECTORS,
    VECTORS_SHAPE,
    floats,
    graph_nodes,
    picture,
    points,
    scalars,
    wrong_buckets,
)
from tensorboard_versions import (
    ProjectorTab,
    apis,
    for_all_interfaces,
    graph_listing,
    image_tag,
    projector_page,
    projector_tab,
    serves_all_interfaces,
    writes_text,
)

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation
    from lab import Lab
    from tensorboard_versions import Version

pytestmark = pytest.mark.usefixtures("importable")
LASTS = 8
SECONDS = 240
BY_DEFAULT, FOR_ALL = PORTS = ("6006", "6106")  # the range's ends; the servers are started so


@dataclass(frozen=True)
class Session:
    """What the servers' own container and another one on its network said."""

    ran: Ran
    reached: Ran

    @property
    def json(self) -> Any:
        """Return what was asked in the servers' container; fails the test where that failed."""
        __tracebackhide__ = True
        return self.ran.json

    def shown(self, part: str) -> Any:
        """Return what the first server shows of a part of the events, once all of it is there."""
        __tracebackhide__ = True
        found = self.json[part]
        if not found["in_time"]:
            out_of_time(f"TensorBoard does not show all that was written; runs: {found['runs']}")
        return found

    def from_afar(self, port: str) -> Any:
        """Return what the other container was answered; with no session, say why there is none."""
        __tracebackhide__ = True
        return self.json and self.reached.json[port]


@pytest.fixture(scope="module")
def version(expect: Expectation) -> Version:
    """Return TensorBoard's major and minor number, by which its routes and options differ."""
    major, minor = expect.pins["tensorboard"].split(".")[:2]
    return int(major), int(minor)


@pytest.fixture(scope="module")
def writers(expect: Expectation) -> tuple[str, ...]:
    """Return the ways this version writes events; each becomes a run of its name."""
    return apis(expect.tensorflow_minor)


@pytest.fixture(scope="module")
def served(lab: Lab, version: Version, writers: tuple[str, ...]) -> Session:
    """Write, serve, ask here and from a second container, stop: all in one go."""
    network = lab.network()
    board, reader = lab.join(network, "board"), lab.join(network, "reader")
    task = task_for(board.fresh_folder(), version, writers)
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(
            board.program, "tensorboard_session.py", json.dumps(task), seconds=SECONDS
        )
        wait_for_file(board, f"{task['logdir']}/serving")
        reached = reader.program("tensorboard_reach.py", "board", *PORTS, seconds=150)
        board.run("touch", f"{task['logdir']}/asked", seconds=10)
        return Session(session.result(), reached)


def wait_for_file(container: Container, path: str) -> None:
    """Wait until a file appears in a container, or as long as what makes it may take."""
    loop = f"until test -e {path}; do sleep 0.3; done"
    container.run("sh", "-c", loop, seconds=SECONDS)


def task_for(logdir: str, version: Version, writers: tuple[str, ...]) -> dict[str, Any]:
    """Return what tensorboard_session.py wants to know."""
    tags = len(writers) * len(SCALARS)
    options: dict[str, list[str]] = {BY_DEFAULT: [], FOR_ALL: for_all_interfaces(version)}
    return {
        "logdir": logdir,
        "apis": writers,
        "servers": [{"port": int(port), "options": options[port]} for port in PORTS],
        "points": [tags * len(FIRST_STEPS), tags * len(ALL_STEPS) + 1],
        "graphs": graph_listing(version),
        "projector_page": projector_page(version),
    }


def test_tensorboard_gives_the_pinned_version(served: Session, expect: Expectation) -> None:
    """What the servers greet with is the version that belongs to this TensorFlow."""
    greeted = [server["version"] for server in served.json["servers"]]
    pinned = expect.pins["tensorboard"]
    assert greeted == [pinned, pinned], f"the servers are TensorBoard {greeted}, pinned: {pinned}"


def test_tensorflow_writes_one_event_file_a_run(served: Session, writers: tuple[str, ...]) -> None:
    """Each API of tf.summary leaves one event file."""
    counts = {api: len(files) for api, files in served.json["written"].items()}
    assert counts == dict.fromkeys(writers, 1)


def test_servers_show_their_own_runs(served: Session, writers: tuple[str, ...]) -> None:
    """Two servers in one container, at both ends of 6006-6106, show a folder each."""
    first, second = (server["runs"] for server in served.json["servers"])
    assert first == sorted([*writers, "late"])
    assert second == ["alone"]


def test_second_server_shows_its_own_values(served: Session) -> None:
    """The same tag has another value in another server's folder."""
    assert served.json["servers"][1]["scalars"] == {"alone": ALONE}


def test_tensorboard_shows_what_was_written_first(
    served: Session, writers: tuple[str, ...]
) -> None:
    """The first part is there before the second is written, and nothing else."""
    before = served.shown("before")
    assert sorted(before["runs"]) == sorted(writers)
    assert before["scalars"] == {api: scalars(FIRST_STEPS) for api in writers}


def test_events_appear_while_tensorboard_runs(served: Session) -> None:
    """A run that is written later appears by itself."""
    after = served.shown("after")
    assert "late" in after["runs"], f"the new run is not among {after['runs']}"
    assert after["scalars"].get("late") == LATE


@pytest.mark.parametrize("tag", SCALARS)
def test_tensorboard_shows_the_values(served: Session, writers: tuple[str, ...], tag: str) -> None:
    """Every step is there, the later ones too, exact to the last bit of a float32."""
    for api in writers:
        found = served.shown("after")["scalars"].get(api, {}).get(tag)
        written = points(tag, ALL_STEPS)
        assert found == written, f"{tag} in the run {api}: {found}, written: {written}"


def test_tensorboard_shows_the_tags(served: Session, writers: tuple[str, ...]) -> None:
    """Each run has the tags that were written, and no other."""
    found = served.shown("after")["scalars"]
    tags = {run: sorted(found[run]) for run in found if run != "late"}
    assert tags == {api: sorted(SCALARS) for api in writers}


def test_tensorboard_shows_the_histograms(served: Session, writers: tuple[str, ...]) -> None:
    """The buckets count the values that were written, each once."""
    found = served.json["histograms"]
    assert {run: list(tags) for run, tags in found.items()} == {api: ["spread"] for api in writers}
    for api in writers:
        steps = [
            (step, wrong_buckets(buckets, SPREAD)) for _, step, buckets in found[api]["spread"]
        ]
        assert steps == [(0, [])], f"the run {api}"


def test_tensorboard_shows_the_images(served: Session, writers: tuple[str, ...]) -> None:
    """The image is a PNG file of the pixels that were written."""
    found = served.json["images"]
    tags = {run: list(tags) for run, tags in found.items()}
    assert tags == {api: [image_tag(api, "picture")] for api in writers}
    for api in writers:
        (shown,) = found[api][image_tag(api, "picture")]
        assert shown["type"] == "image/png", f"the run {api}"
        assert picture(shown["body"]) == PICTURE, f"the run {api}"


def test_tensorboard_shows_the_text(served: Session, writers: tuple[str, ...]) -> None:
    """The text is rendered: its Markdown as HTML, its own `<` as text."""
    texts = {
        run: {tag: [row["text"] for row in rows] for tag, rows in tags.items()}
        for run, tags in served.json["text"].items()
    }
    assert texts == {api: {"note": [NOTE_HTML]} for api in writers if writes_text(api)}


def test_tensorboard_shows_the_graphs(served: Session, writers: tuple[str, ...]) -> None:
    """The graph has the node that was named, with its operation."""
    found = served.json["graphs"]
    assert sorted(found) == sorted(writers)
    for api in writers:
        nodes = graph_nodes(found[api])
        assert NODE in nodes, f"the run {api} has these nodes: {nodes}"


def test_projector_shows_the_vectors(served: Session) -> None:
    """What was saved as a checkpoint is served, with its labels."""
    found = served.json["projector"]
    assert found["runs"] == ["v1"]
    (embedding,) = found["info"]["embeddings"]
    assert (embedding["tensorName"], embedding["tensorShape"]) == ("vectors", VECTORS_SHAPE)
    assert floats(found["tensor"]) == VECTORS
    assert found["labels"] == LABELS


def test_projector_has_its_page(served: Session) -> None:
    """The projector opens by its own address, which is the way round the fault of 1.15 and 2.0."""
    page = served.json["projector"]["page"]
    assert (page["status"], page["type"].partition(";")[0]) == (200, "text/html"), page
    assert page["shows"], "the page does not name the projector's element"


def test_projector_tab_opens_as_documented(served: Session, version: Version) -> None:
    """From the server's root in 1.15 and 2.0 (empty behind a proxy's path), relative later."""
    found = served.json["projector"]
    assert opened(found["listed"], found["entry"]) is projector_tab(version), found["listed"]


def opened(listed: Any, entry: int) -> ProjectorTab:
    """Return how the tab is opened, by its plugin's listing and the status of the entry page."""
    mechanism = listed["loading_mechanism"] if isinstance(listed, dict) else {}
    if mechanism.get("type") != "IFRAME":
        return ProjectorTab.INSIDE
    if entry == 200:
        return ProjectorTab.RELATIVE
    return ProjectorTab.FROM_ROOT


def test_another_container_is_served(served: Session) -> None:
    """With the option for all interfaces, the page and the runs cross the network."""
    answer = served.from_afar(FOR_ALL)
    assert answer["error"] is None, answer["error"]
    assert (answer["runs"], answer["page"]) == (["alone"], True)


def test_another_container_is_served_by_default_before_2_0(
    served: Session, version: Version
) -> None:
    """Without an option, 1.x serves everybody and 2.x the container itself alone."""
    answer = served.from_afar(BY_DEFAULT)
    assert bool(answer["runs"]) == serves_all_interfaces(version), f"from afar: {answer}"


def test_tensorboard_stops_on_sigterm(served: Session) -> None:
    """Both go by themselves at the signal, so that `docker stop` need not wait and kill."""
    for end in served.json["ends"]:
        if end["exit_code"] is None:
            out_of_time(f"still running {end['seconds']} s after SIGTERM")
        assert end["exit_code"] in (0, -signal.SIGTERM), f"ended with {end['exit_code']} on SIGTERM"


def test_tensorboard_leaves_no_process(served: Session) -> None:
    """What they started ended with them; that they were seen before shows that the search works."""
    if any(end["exit_code"] is None for end in served.json["ends"]):
        out_of_time("a TensorBoard still ran when its processes were looked for")
    running, left = served.json["running"], served.json["left"]
    assert len(running) >= len(PORTS), f"not all servers were found in the container: {running}"
    assert left == [], f"left behind: {left}"
