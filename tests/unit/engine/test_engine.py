"""The engine in memory, the real one's answers, and the errors of both."""

from pathlib import Path

import docker.errors
import pytest
import requests

from imgbuild.engine import types
from imgbuild.engine.client import Engine
from imgbuild.engine.faults import EngineUnusableError, answered_error, engine_error, translated
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError, InputError, MachineError

ID = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64
HOST = "unix:///run/test.sock"


def test_a_listed_image_without_names_or_labels() -> None:
    listed = {"Id": ID, "RepoTags": ["<none>:<none>"], "Labels": None, "Size": 5, "Created": 7}
    assert types.listed_image(listed) == StoredImage(ID, (), {}, 5, 7)
    assert types.listed_image({"Id": ID, "RepoTags": None}) == StoredImage(ID)


def test_an_inspected_image() -> None:
    inspected = {
        "Id": ID,
        "RepoTags": ["a:1"],
        "Config": {"Labels": {"k": "v"}},
        "Size": 5,
        "Created": "2023-11-14T22:13:20.123456789Z",
    }
    expected = StoredImage(ID, ("a:1",), {"k": "v"}, 5, 1700000000)
    assert types.inspected_image(inspected) == expected
    undated = {**inspected, "Created": "0001-01-01T00:00:00Z"}
    assert types.inspected_image(undated).created == 0


@pytest.mark.parametrize(
    ("status", "containerd"),
    [
        ([["driver-type", "io.containerd.snapshotter.v1"]], True),
        ([["Backing Filesystem", "extfs"]], False),
        (None, False),
    ],
)
def test_the_kind_of_store(status: list[list[str]] | None, *, containerd: bool) -> None:
    found = types.engine_version({"Version": "1"}, {"DriverStatus": status, "Driver": "x"})
    assert found.containerd_store is containerd


@pytest.mark.parametrize(
    ("info", "gpus"),
    [
        ({"Runtimes": {"runc": {}, "nvidia": {}}}, "nvidia"),
        ({"Runtimes": {"runc": {}}}, None),
        ({"Runtimes": None, "DiscoveredDevices": None}, None),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, "cdi"),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]}, None),
    ],
)
def test_how_gpus_are_offered(info: dict[str, object], gpus: str | None) -> None:
    assert types.engine_version({}, info).gpus == gpus


def test_loaded_names_and_ids() -> None:
    messages = [{"stream": "Loaded image: a:1\n"}, {"stream": f"Loaded image ID: {ID}\n"}, {}]
    assert list(types.loaded(messages)) == ["a:1", ID]


def refused(status: int, words: str) -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    return docker.errors.APIError("failed", response=response, explanation=words)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PermissionError(13, "Permission denied"), EngineUnusableError, "'docker' group"),
        (
            FileNotFoundError(2, "No such file or directory"),
            EngineUnusableError,
            "socket does not exist",
        ),
        (requests.ConnectionError("Connection refused"), EngineUnusableError, "Nothing listens"),
        (requests.ReadTimeout("Read timed out."), EngineUnusableError, "answer in time"),
        (
            requests.ConnectionError("Connection aborted"),
            EngineUnusableError,
            "closed the connection",
        ),
        (
            docker.errors.InvalidVersion("API versions below 1.24 are"),
            EngineUnusableError,
            "upgrade",
        ),
        (refused(400, "client version 1.4 is too old"), MachineError, "upgrade"),
        (refused(500, "write /x: no space left on device"), EngineUnusableError, "disk is full"),
        (refused(500, "stat /x: no such file or directory"), MachineError, "reports an error"),
        (refused(404, "No such image: a:1"), CheckFailedError, "No such image: a:1"),
        (refused(409, "conflict"), CheckFailedError, "refuses: conflict"),
    ],
)
def test_errors_say_where_and_what_to_do(
    error: Exception, kind: type[ImgbuildError], said: str
) -> None:
    found = engine_error(error, HOST)
    assert type(found) is kind
    assert HOST in str(found)
    assert said in str(found)
    assert "imgbuild doctor" in str(found) or kind is CheckFailedError


def test_an_upstreams_refusal_is_not_taken_for_the_engines() -> None:
    words = "dial tcp 127.0.0.1:1: connect: connection refused"
    assert "Nothing listens" not in str(answered_error(words, HOST, refused=False))


def test_no_error_of_docker_py_gets_out() -> None:
    with pytest.raises(MachineError), translated(HOST):
        raise docker.errors.DockerException
    with pytest.raises(KeyError), translated(HOST):
        raise KeyError


def test_an_absent_socket_is_the_machines_fault(tmp_path: Path) -> None:
    engine = Engine(f"unix://{tmp_path}/none.sock")
    with pytest.raises(MachineError, match="socket does not exist"):
        engine.version()
    engine.close()


def test_errors_in_a_stream_are_raised() -> None:
    checked = Engine(HOST)._checked([{"status": "x"}, {"error": "no space left on device"}])
    assert next(checked) == {"status": "x"}
    with pytest.raises(MachineError, match="disk is full"):
        next(checked)


def test_an_id_is_no_name() -> None:
    with pytest.raises(InputError, match="image id"):
        Engine(HOST).untag(ID)
