"""The engine in memory, the real one's answers, and the errors of both."""

import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker.errors
import pytest
import requests

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.engine import types
from imgbuild.engine.client import Engine, read_first_entry
from imgbuild.engine.faults import (
    EngineUnusableError,
    answered_error,
    engine_error,
    translate_errors,
    without_advice,
)
from imgbuild.engine.types import Layer, StoredImage
from support.fake_engine import FakeEngine
from support.socket_server import SocketServer, socket_server

ID = "sha256:" + "1" * 64
HOST = "unix:///run/test.sock"


def test_the_answers_of_the_engine_are_read() -> None:
    listed = {"Id": ID, "RepoTags": ["<none>:<none>"], "Labels": None, "Size": 5, "Created": 7}
    assert types.stored_image(listed) == StoredImage(ID, (), {}, 5, 7)
    inspected = {
        "Id": ID,
        "RepoTags": ["a:1"],
        "RepoDigests": ["a@sha256:2"],
        "Config": {"Labels": {"k": "v"}, "User": "1000:1000"},
        "RootFS": {"Layers": ["sha256:1"]},
    }
    for date, seconds in (
        ("2023-11-14T22:13:20.123456789Z", 1700000000),
        ("0001-01-01", 0),
        ("9999-12-31T23:59:59-23:00", 0),
    ):
        found = types.stored_image({**inspected, "Created": date})
        more = (("sha256:1",), "1000:1000", ("a@sha256:2",))
        assert found == StoredImage(ID, ("a:1",), {"k": "v"}, 0, seconds, *more)


CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]


@pytest.mark.parametrize(
    ("info", "gpus", "containerd"),
    [
        ({"Runtimes": {"runc": {}, "nvidia": {}}}, "nvidia", False),
        ({"Runtimes": {"runc": {}}, "DriverStatus": CONTAINERD}, None, True),
        ({"Runtimes": None, "DiscoveredDevices": None, "DriverStatus": None}, None, False),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, "cdi", False),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]}, None, False),
        ({"DriverStatus": [["Backing Filesystem", "extfs"]]}, None, False),
    ],
)
def test_how_gpus_are_offered_and_the_kind_of_store(
    info: dict[str, object], gpus: str | None, containerd: bool
) -> None:
    found = types.engine_version({"Driver": "x", **info})
    assert (found.gpus, found.containerd_store) == (gpus, containerd)


def refused(status: int, words: str) -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    return docker.errors.APIError("failed", response=response, explanation=words)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PermissionError(13, "Permission denied"), EngineUnusableError, "'docker' group"),
        (requests.ConnectionError("Connection refused"), EngineUnusableError, "Start it"),
        (requests.ReadTimeout("Read timed out."), EngineUnusableError, "Start it"),
        (
            docker.errors.InvalidVersion("API versions below 1.24 are"),
            EngineUnusableError,
            "upgrade",
        ),
        (refused(400, "client version 1.4 is too old"), MachineError, "upgrade"),
        (refused(500, "write /x: no space left on device"), EngineUnusableError, "disk is full"),
        (refused(500, "stat /x: no such file or directory"), MachineError, "stat /x: no such file"),
        (refused(404, "No such image: a:1"), CheckFailedError, "No such image: a:1"),
        (refused(409, "conflict"), CheckFailedError, "refused: conflict"),
        (refused(400, "invalid reference format"), InputError, "Give the name or id of an image"),
    ],
)
def test_errors_say_where_and_what_to_do(
    error: Exception, kind: type[ImgbuildError], said: str
) -> None:
    found = engine_error(error, HOST)
    assert type(found) is kind
    assert HOST in str(found)
    assert said in str(found)
    assert "imgbuild doctor" in str(found) or kind in {CheckFailedError, InputError}


def test_errors_are_not_taken_for_others() -> None:
    words = "dial tcp 127.0.0.1:1: connect: connection refused"
    said = str(answered_error(words, HOST, refused=False))
    assert "Start it" not in said, "an upstream refused, not the engine"
    assert "Check the registry" in said
    assert "imgbuild doctor" not in said, "doctor knows nothing of this registry"
    assert without_advice(MachineError(said)).endswith(f"{words}.")
    with pytest.raises(MachineError), translate_errors(HOST):
        raise docker.errors.DockerException
    for fault in (KeyError, ValueError):  # of this program
        with pytest.raises(fault), translate_errors(HOST):
            raise fault
    checked = Engine(HOST)._check_messages([{"status": "x"}, {"error": "no space left on device"}])
    assert next(checked) == {"status": "x"}
    with pytest.raises(MachineError, match="disk is full"):
        next(checked)


@pytest.mark.parametrize("name", ["", "/", "../containers", "a//b", "a/.."])
def test_what_the_api_has_something_else_for_is_no_name_of_an_image(name: str) -> None:
    with pytest.raises(InputError, match="name of an image"):
        Engine(HOST).inspect(name)


def test_an_image_is_never_untagged_by_its_id() -> None:
    with pytest.raises(InputError, match="image id"):
        Engine(HOST).untag(ID)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    with socket_server(tmp_path / "engine.sock") as started:
        yield started


def test_images_and_history_come_in_one_call_each_without_docker_py(server: SocketServer) -> None:
    entries = [{"CreatedBy": "CMD x", "Size": 0}, {"CreatedBy": None, "Size": 7}]
    history = f"/images/{ID.replace(':', '%3A')}/history"
    server.answers = {"/images/json": [{"Id": ID}], history: entries}
    engine = Engine(server.host)
    assert engine.images("imgbuild.name=tf") == [StoredImage(ID)]
    assert engine.history(ID) == [Layer(None, 0, "CMD x"), Layer(None, 7, "")]
    (path, query), (second, _) = server.asked
    assert (path, second.endswith("/history")) == ("/images/json", True)
    assert json.loads(query["filters"][0]) == {"label": ["imgbuild.name=tf"]}
    assert engine._client is None


def test_an_image_that_the_engine_can_pull(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(server.host)
    monkeypatch.setattr(engine, "inspect", lambda _: None)
    assert engine.can_pull("debian:12")
    server.status = 500
    assert not engine.can_pull("debian:12")
    assert [path for path, _ in server.asked] == ["/distribution/debian%3A12/json"] * 2
    monkeypatch.setattr(engine, "inspect", lambda _: StoredImage(ID))
    assert engine.can_pull("debian:12"), "it is there"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, CheckFailedError), (500, MachineError), (200, EngineUnusableError)],
    ids=["refused", "failed", "not JSON"],
)
def test_whose_fault_an_answer_is(server: SocketServer, status: int, kind: type[Exception]) -> None:
    answer = b"<html>" if status == 200 else {"message": "no."}
    server.status, server.answers = status, {"/images/json": answer}
    with pytest.raises(kind) as caught:
        Engine(server.host).images("k")
    assert type(caught.value) is kind


def test_an_engine_that_nobody_serves_is_said_in_the_systems_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tcp, nothing = Engine("tcp://127.0.0.1:9"), Engine(f"unix://{tmp_path}/nothere")
    calls = (
        (tcp.version, "no connection: Conn"),
        (lambda: tcp.images("k"), "no connection: Conn"),
        (nothing.version, "No such file"),
        (lambda: nothing.images("k"), "No such file"),
        (lambda: Engine(f"unix://{tmp_path}/file").images("k"), "Connection refused"),
        (Engine("tcp://[::1").version, "Invalid IPv6 URL"),
    )
    for call, words in calls:
        with pytest.raises(EngineUnusableError, match=words) as caught:
            call()
        assert not re.search("HTTPConnection|retries", str(caught.value))


@pytest.mark.parametrize("name", ["nope:1", "me/nope:1", f"nope@{ID}", f"debian@{ID}"])
def test_pull_needs_the_name_of_a_registry(name: str) -> None:
    """Docker Hub can have anybody's image by another name."""
    engine = FakeEngine(registry={name: StoredImage(ID, (name,))})
    with pytest.raises(InputError, match=re.escape(name)):
        engine.pull(name)
    assert engine.stored == {}
    if "@" in name:  # the base images of the matrix
        engine.pull(name, pinned=True)
        assert ID in engine.stored
    else:
        with pytest.raises(InputError):
            engine.pull(name, pinned=True)


def test_the_family_s_image_is_suggested_for_a_known_name() -> None:
    for use in (Engine.pull, Engine.need):
        with pytest.raises(InputError, match=r"use --tf 2\.2 --gpu instead"):
            use(_Empty(HOST), "tensorflow/tensorflow:2.2.0-gpu")


class _Empty(Engine):
    def inspect(self, _reference: str) -> None:
        """Return no image."""


def _archive(entry: tarfile.TarInfo, content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    entry.size = len(content)
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_copy_out_reads_a_regular_file_alone() -> None:
    assert (
        read_first_entry([_archive(tarfile.TarInfo("status"), b"x" * 9)], "/status", 9) == b"x" * 9
    )
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
        entry = tarfile.TarInfo("status")
        entry.type, entry.linkname = kind, "/etc/shadow"
        assert read_first_entry([_archive(entry)], "/status", 9) is None


def test_copy_out_stops_at_its_limit() -> None:
    header = tarfile.TarInfo("status")
    header.size = 1 << 40
    pieces, read = [header.tobuf(), *[b"0" * (1 << 20)] * 9], list[int]()

    def given() -> Iterator[bytes]:
        for piece in pieces:
            read.append(len(piece))
            yield piece

    with pytest.raises(CheckFailedError, match="/status"):
        read_first_entry(given(), "/status", 1 << 20)
    assert sum(read) <= 4 << 20


@pytest.mark.parametrize("content", [b"", b"no archive" * 99])
def test_copy_out_of_no_archive_is_an_error(content: bytes) -> None:
    with pytest.raises(CheckFailedError, match="/status"):
        read_first_entry([content], "/status", 9)
