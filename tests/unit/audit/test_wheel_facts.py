"""Facts out of wheels on a server; servers and archives that mislead are refused."""

import pytest
from fake_wheel import CPU, FakeWheel
from faulty_server import FaultyServer, Reply

from imgbuild.audit.facts import WheelFacts
from imgbuild.audit.wheels import RemoteFile, read_wheel
from imgbuild.errors import MachineError
from imgbuild.http import HttpClient

pytest_plugins = ("audit_fixtures",)


def _read(server: FaultyServer, client: HttpClient, wheel: FakeWheel) -> WheelFacts:
    server.give("/w.whl", Reply(wheel.content()))
    return read_wheel(RemoteFile(client, f"{server.url}/w.whl"), wheel.file, "00" * 32)


def _refusal(server: FaultyServer, client: HttpClient) -> str:
    with pytest.raises(MachineError) as caught:
        read_wheel(RemoteFile(client, f"{server.url}/w.whl"), FakeWheel().file, "00" * 32)
    return str(caught.value)


def test_a_gpu_and_a_cpu_wheel_with_a_loader(server: FaultyServer, client: HttpClient) -> None:
    facts = _read(server, client, FakeWheel())
    assert facts.libraries == (
        "libcublas.so.10", "libcuda.so.1", "libcudart.so.10.1", "libcudnn.so.7",
    )  # fmt: skip
    assert (facts.loading, facts.cuda_build, facts.compiler) == ("opened", True, "7.3.1")
    assert (facts.cxx11_abi, facts.glibc, facts.version_of("cudart")) == (0, "2.12", "10.1")
    facts = _read(server, client, FakeWheel(loader=dict(CPU), build_info="is_cuda_build = False"))
    assert (facts.libraries, facts.loading, facts.cuda_build) == ((), "none", False)


def test_an_old_gpu_wheel_needs_its_libraries(server: FaultyServer, client: HttpClient) -> None:
    needed = ("libcudart.so.9.0", "libcudnn.so.7", "libfoo.so.1", "libc.so.6")
    facts = _read(server, client, FakeWheel(loader={}, needed=needed, compiler="4.8.5"))
    assert (facts.libraries, facts.loading) == (("libcudart.so.9.0", "libcudnn.so.7"), "needed")
    assert facts.compiler == "4.8.5"


def test_the_new_abi_and_the_capabilities(server: FaultyServer, client: HttpClient) -> None:
    info = "build_info = {'is_cuda_build': True, 'cuda_compute_capabilities': ['sm_35']}\n"
    own = ("_ZN10tensorflow3fooERKNSt7__cxx1112basic_stringIcEE",)
    facts = _read(server, client, FakeWheel(own=own, build_info=info))
    assert (facts.cxx11_abi, facts.capabilities) == (1, ("sm_35",))


def test_build_info_is_never_executed(server: FaultyServer, client: HttpClient) -> None:
    info = "import os\nis_cuda_build = os.abort()\ncuda_version_number = '10'\n"
    assert _read(server, client, FakeWheel(build_info=info)).cuda_build is None


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply(b"PK\x03\x04" * 9, ranges=False), "ignores ranges"),
        (Reply(b"", 500, ranges=False), "answered 500"),
        (
            Reply(b"P", 206, headers={"Content-Range": "bytes 5-5/999"}, ranges=False),
            "answered 206",
        ),
        (Reply(b"PK", 206, headers={"Content-Range": "bytes 0-0/9"}, ranges=False), "with 2 bytes"),
        (
            Reply(b"<", 206, headers={"Content-Range": "bytes 0-0/1"}, ranges=False),
            "is no wheel, or damaged",
        ),
    ],
)
def test_a_server_that_does_not_serve_ranges(
    server: FaultyServer, client: HttpClient, reply: Reply, text: str
) -> None:
    server.give("/w.whl", reply)
    assert text in _refusal(server, client)


def test_an_archive_that_is_damaged_or_no_tensorflow(
    server: FaultyServer, client: HttpClient
) -> None:
    content = FakeWheel().content()
    server.give("/w.whl", Reply(content[: content.rfind(b"PK\x05\x06")]))
    assert "is no wheel, or damaged" in _refusal(server, client)
    server.give("/w.whl", Reply(content.replace(b"_framework", b"_framewerk")))
    assert "has no /libtensorflow_framework.so" in _refusal(server, client)


def test_a_library_without_what_is_looked_for(server: FaultyServer, client: HttpClient) -> None:
    for wheel in (FakeWheel(own=()), FakeWheel(compiler="clang")):
        server.give("/w.whl", Reply(wheel.content()))
        assert "libtensorflow_framework.so" in _refusal(server, client)
