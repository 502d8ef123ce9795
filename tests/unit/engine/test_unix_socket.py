"""The one question to the engine: over its socket, without docker-py, with the same errors."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from socket_server import SocketServer, socket_server

from imgbuild.engine.client import Engine
from imgbuild.engine.unix_socket import unix_socket
from imgbuild.errors import CheckFailedError, MachineError

IMAGE = {"Id": "sha256:1", "RepoTags": ["a:1"], "Labels": {"k": "v"}, "Size": 7, "Created": 8}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    with socket_server(tmp_path / "engine.sock") as started:
        yield started


def test_images_come_in_one_call(server: SocketServer) -> None:
    server.answers = {"/images/json": [IMAGE, "no image"]}
    (found,) = Engine(server.host).images("imgbuild.name=tf")
    assert (found.id, found.tags, found.labels) == ("sha256:1", ("a:1",), {"k": "v"})
    ((path, query),) = server.asked
    assert path == "/images/json"
    assert json.loads(query["filters"][0]) == {"label": ["imgbuild.name=tf"]}


def test_the_history_comes_over_the_socket_too(server: SocketServer) -> None:
    entries = [{"CreatedBy": "CMD x", "Size": 0}, {"CreatedBy": None, "Size": 7}, "no entry"]
    server.answers = {"/images/sha256%3A1/history": entries}
    assert Engine(server.host).history("sha256:1") == [("CMD x", 0), ("", 7)]
    assert len(server.asked) == 1
    server.status, server.answers = 404, {}
    with pytest.raises(CheckFailedError, match="refuses: no such answer"):
        Engine(server.host).history("sha256:1")


def test_what_an_engine_refuses_is_said_in_its_words(server: SocketServer) -> None:
    server.status = 400
    with pytest.raises(CheckFailedError, match=r"refuses: no such answer\."):
        Engine(server.host).images("k")
    server.status = 500
    with pytest.raises(MachineError, match=r"reports an error: no such answer\. 'imgbuild doctor'"):
        Engine(server.host).images("k")
    server.answers = {"/images/json": b"<html>"}
    with pytest.raises(MachineError, match="HTTP status 500"):
        Engine(server.host).images("k")


def test_an_answer_that_is_no_json(server: SocketServer) -> None:
    server.answers = {"/images/json": b"<html>"}
    with pytest.raises(MachineError, match=f"engine at {server.host} cannot be used"):
        Engine(server.host).images("k")


def test_a_socket_that_is_not_there_or_that_nobody_serves(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"nothere.*socket does not exist"):
        Engine(f"unix://{tmp_path}/nothere").images("k")
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="Nothing listens there"):
        Engine(f"unix://{tmp_path}/file").images("k")


def test_other_addresses_are_left_to_docker_py() -> None:
    assert unix_socket("tcp://engine:2376") is None
    assert unix_socket("ssh://user@engine") is None
    assert unix_socket(None) == Path("/var/run/docker.sock")
