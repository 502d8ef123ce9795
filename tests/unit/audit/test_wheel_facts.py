"""Facts out of wheels on a server, and every way in which a server or an archive can mislead."""

import struct
from dataclasses import replace

import pytest
from fake_server import Answer, FakeServer, ranged
from fake_wheel import CPU, FakeWheel

from imgbuild.audit.client import Client
from imgbuild.audit.elf import Elf, ElfError
from imgbuild.audit.facts import WheelFacts
from imgbuild.audit.failure import ReadError, UnreachableError
from imgbuild.audit.ranges import RangeReader
from imgbuild.audit.remote_wheel import RemoteWheel
from imgbuild.audit.wheel_facts import read_facts

pytest_plugins = ("audit_fixtures",)


def _read(loopback: FakeServer, client: Client, wheel: FakeWheel) -> WheelFacts:
    loopback.files["/w.whl"] = wheel.content()
    reader = RangeReader(client, f"{loopback.url}/w.whl")
    return read_facts(RemoteWheel(reader), wheel.file, "00" * 32)


def _refusal(loopback: FakeServer, client: Client) -> str:
    try:
        wheel = RemoteWheel(RangeReader(client, f"{loopback.url}/w.whl"))
        read_facts(wheel, FakeWheel().file, "00" * 32)
    except ReadError as error:
        return str(error)
    raise AssertionError("it was read")


def test_a_gpu_wheel_with_a_loader(loopback: FakeServer, client: Client) -> None:
    facts = _read(loopback, client, FakeWheel())
    assert facts.libraries == (
        "libcublas.so.10", "libcuda.so.1", "libcudart.so.10.1", "libcudnn.so.7",
    )  # fmt: skip
    assert (facts.loading, facts.cuda_build, facts.compiler) == ("opened", True, "7.3.1")
    assert (facts.cxx11_abi, facts.glibc, facts.version_of("cudart")) == (0, "2.12", "10.1")
    assert WheelFacts.from_json(facts.sha256, facts.as_json()) == facts


def test_a_cpu_wheel_has_a_loader_without_versions(loopback: FakeServer, client: Client) -> None:
    facts = _read(loopback, client, FakeWheel(loader=dict(CPU), build_info="is_cuda_build = False"))
    assert (facts.libraries, facts.loading, facts.cuda_build) == ((), "none", False)


def test_an_old_gpu_wheel_needs_its_libraries(loopback: FakeServer, client: Client) -> None:
    needed = ("libcudart.so.9.0", "libcudnn.so.7", "libfoo.so.1", "libc.so.6")
    wheel = FakeWheel(loader={}, needed=needed, compiler="4.8.5")
    facts = _read(loopback, client, wheel)
    assert (facts.libraries, facts.loading) == (("libcudart.so.9.0", "libcudnn.so.7"), "needed")
    assert facts.compiler == "4.8.5"


def test_the_new_abi_and_the_capabilities(loopback: FakeServer, client: Client) -> None:
    info = "build_info = {'is_cuda_build': True, 'cuda_compute_capabilities': ['sm_35']}\n"
    own = ("_ZN10tensorflow3fooERKNSt7__cxx1112basic_stringIcEE",)
    facts = _read(loopback, client, FakeWheel(own=own, build_info=info))
    assert (facts.cxx11_abi, facts.capabilities) == (1, ("sm_35",))


def test_build_info_is_never_executed(loopback: FakeServer, client: Client) -> None:
    info = "import os\nis_cuda_build = os.abort()\ncuda_version_number = '10'\n"
    assert _read(loopback, client, FakeWheel(build_info=info)).cuda_build is None


def test_only_single_ranges_are_asked_for(loopback: FakeServer, client: Client) -> None:
    _read(loopback, client, FakeWheel())
    assert all("," not in wanted for wanted in loopback.ranges)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {}, b"PK\x03\x04" * 9), "ignores ranges"),
        ((200, {}, b"<html>sign in"), "ignores ranges"),
        ((416, {}, b""), "says 416"),
        ((404, {}, b""), "says 404"),
        ((500, {}, b""), "says 500"),
        ((206, {}, b"PK\x03\x04"), "answers with None"),
        ((206, {"Content-Range": "bytes 5-8/999"}, b"PK\x03\x04"), "bytes 5-8/999"),
        ((206, {"Content-Range": "bytes 0-3/*"}, b"PK\x03\x04"), "bytes 0-3/*"),
        ((206, {"Content-Range": "bytes 0-3/9"}, b"PK"), "arrived as 2 bytes"),
        ((206, {"Content-Range": "bytes 0-3/9"}, b"PK\x03\x04\x05"), "arrived as 5 bytes"),
        ((206, {"Content-Range": "bytes 0-3/40"}, b"<htm"), "no zip archive"),
        (
            (206, {"Content-Range": "bytes 0-3/9", "Content-Encoding": "br"}, b"abcd"),
            "encodes ranges",
        ),
    ],
)
def test_a_server_that_does_not_serve_ranges(
    loopback: FakeServer, client: Client, answer: Answer, said: str
) -> None:
    loopback.answers["/w.whl"] = lambda _: answer
    assert said in _refusal(loopback, client)


def test_a_body_that_breaks_off(loopback: FakeServer, client: Client) -> None:
    headers = {"Content-Range": "bytes 0-3/9", "Content-Length": "4"}
    loopback.answers["/w.whl"] = lambda _: (206, {**headers, "Connection": "close"}, b"PK")
    with pytest.raises(UnreachableError, match="broke off"):
        RangeReader(client, f"{loopback.url}/w.whl")


def test_a_later_range_of_another_file(loopback: FakeServer, client: Client) -> None:
    content = FakeWheel().content()

    def answer(wanted: str | None) -> Answer:
        grown = content + b"\0" * (wanted != "bytes=0-3")
        return ranged(grown, wanted or "")

    loopback.answers["/w.whl"] = answer
    assert "Not used" in _refusal(loopback, client)


def _end(content: bytes) -> int:
    return content.rfind(b"PK\x05\x06")


def _changed(content: bytes, at: int, value: bytes) -> bytes:
    return content[:at] + value + content[at + len(value) :]


def _entry(content: bytes, name: bytes) -> int:
    """Return where the directory's entry of a member begins."""
    return content.rfind(name) - 46


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: _changed(c, _end(c) + 12, struct.pack("<I", 1 << 31)), "claims 2147483648"),
        (lambda c: _changed(c, _end(c) + 16, struct.pack("<I", 1 << 30)), "damaged"),
        (lambda c: _changed(c, _end(c) + 10, struct.pack("<H", 60000)), "damaged"),
        (lambda c: _changed(c, _end(c) + 10, struct.pack("<H", 6)), "damaged"),
        (lambda c: c[: _end(c)], "no directory"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 24, b"\xff" * 4), "4294967295"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 24, b"\x01\0\0\0"), "differs in"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 16, b"\0" * 4), "checksum"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 20, b"\xff" * 4), "beyond the end"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 42, b"\xff" * 4), "beyond the end"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 42, b"\1\0\0\0"), "header"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 10, b"\x0e\0"), "method 14"),
        (lambda c: _changed(c, _entry(c, b"tensorflow/libt") + 8, b"\1\0"), "damaged"),
        (lambda c: c.replace(b"/libtensorflow_framework", b"/libtensorflow_framewerk"), "no wheel"),
    ],
)
def test_an_archive_that_lies(
    loopback: FakeServer,
    client: Client,
    change: "object",
    said: str,
) -> None:
    assert callable(change)
    loopback.files["/w.whl"] = change(FakeWheel().content())
    assert said in _refusal(loopback, client)


def test_a_library_without_what_is_looked_for(loopback: FakeServer, client: Client) -> None:
    for wheel in (FakeWheel(own=()), FakeWheel(compiler="clang")):
        loopback.files["/w.whl"] = wheel.content()
        assert "libtensorflow_framework.so" in _refusal(loopback, client)


def test_a_beginning_that_never_ends(loopback: FakeServer, client: Client) -> None:
    loopback.files["/w.whl"] = FakeWheel(loader={}, needed=()).content()
    reader = RangeReader(client, f"{loopback.url}/w.whl")
    wheel = RemoteWheel(reader)
    member = wheel.find(("/_pywrap_tensorflow_internal.so",))
    assert member
    assert wheel.read_until(member, lambda _: False).startswith(b"\x7fELF")
    longer = replace(member, packed=member.packed - 4)
    with pytest.raises(ReadError, match="does not hold"):
        wheel.read_until(longer, lambda _: False)


@pytest.mark.parametrize(
    "content", [b"", b"MZ", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 90]
)
def test_what_is_no_elf(content: bytes) -> None:
    with pytest.raises(ElfError):
        Elf(content)
