"""The pages of an index, and facts out of its wheels; what misleads is refused."""

import io
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace

import pytest
from elftools.common.exceptions import ELFError

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.settings import Settings
from imgbuild.maintain import package_index, wheels
from imgbuild.maintain.package_index import (
    OfferedFile,
    RemoteFile,
    find_index_url,
    read_project_page,
)
from imgbuild.maintain.wheels import PIECE, Library, compute_capabilities, read_wheel
from imgbuild.matrix.evidence import WheelFacts
from imgbuild.net.http import HttpClient
from imgbuild.net.sites import Sites
from support.bombs import UNPACKED, memory_below, replaced, understated
from support.fake_wheel import AARCH64, CPU, GPU_11_2, FakeWheel
from support.faulty_server import FaultyServer, Reply

pytest_plugins = ("support.audit_fixtures",)
SHA = "ab" * 32
NEVER_RUN = "import os\nis_cuda_build = os.abort()\n"


def test_the_index_is_the_mirror_or_that_of_uv_and_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "pip", None)  # an environment of uv's or pipx's has none
    assert re.fullmatch(r"https://[a-z.]+/simple", find_index_url(Sites()))
    with monkeypatch.context() as other:
        other.setattr(package_index, "find_uv_bin", lambda: "echo")
        with pytest.raises(InputError, match="set UV_DEFAULT_INDEX"):
            find_index_url(Sites())
    monkeypatch.setenv("PIP_INDEX_URL", "https://c/simple")
    assert find_index_url(Sites()) == "https://c/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://user:secret@[::1")
    with pytest.raises(InputError, match=r"UV_DEFAULT_INDEX, .*: Invalid IPv6 URL"):
        find_index_url(Sites())
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://a/simple/")
    assert find_index_url(Sites()) == "https://a/simple"
    mirror = Settings.model_validate({"mirrors": {"python-index": "https://m/simple"}})
    assert find_index_url(Sites({}, mirror)) == "https://m/simple"


def test_a_page_lists_files_with_their_sha256(server: FaultyServer, client: HttpClient) -> None:
    index = f"{server.url}/simple"
    server.project("x", f'href="../../f/x-1.whl#sha256={SHA}" data-yanked="bad">x', 'href="/y">y')
    file = OfferedFile("x-1.whl", f"{server.url}/f/x-1.whl", SHA, "bad")
    assert read_project_page(client, index, "x") == {"x-1.whl": file}
    assert read_project_page(client, index, "absent") == {}
    server.give("/simple/y/", Reply(b"<html>sign in</html>", kind="text/html"))
    with pytest.raises(MachineError, match=r"200 with text/html, but without a list"):
        read_project_page(client, index, "y")


Read = Callable[[Reply | FakeWheel], WheelFacts]


@pytest.fixture
def read(server: FaultyServer, client: HttpClient) -> Read:
    """Return how to read a wheel, or another reply, from the server."""

    def from_server(what: Reply | FakeWheel) -> WheelFacts:
        reply = what if isinstance(what, Reply) else Reply(what.content())
        remote = RemoteFile(client, server.give("/w.whl", reply))
        wheel = FakeWheel() if isinstance(what, Reply) else what
        return read_wheel(remote, wheel.file, "00" * 32, ("cp36",))

    return from_server


INFO = "tensorflow_gpu-2.2.0.dist-info"
LIBRARY = "tensorflow/libtensorflow_framework.so.2"
INTERNAL = "tensorflow/python/_pywrap_tensorflow_internal.so"
SESSION = "tensorflow/python/client/_pywrap_tf_session.so"


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (f"{INFO}/METADATA", zipfile.ZIP_DEFLATED),
        (f"{INFO}/WHEEL", zipfile.ZIP_DEFLATED),
        ("tensorflow/python/platform/build_info.py", zipfile.ZIP_DEFLATED),
        (LIBRARY, zipfile.ZIP_DEFLATED),
        (INTERNAL, zipfile.ZIP_DEFLATED),
        (SESSION, zipfile.ZIP_DEFLATED),
        (f"{INFO}/METADATA", zipfile.ZIP_BZIP2),
        (INTERNAL, zipfile.ZIP_BZIP2),
    ],
)
def test_read_wheel_that_unpacks_to_too_much(
    read: Read, monkeypatch: pytest.MonkeyPatch, name: str, method: int
) -> None:
    monkeypatch.setattr(wheels, "_LIBRARY_LIMIT", 4 << 20)
    monkeypatch.setattr(wheels, "_STREAM_LIMIT", 4 << 20)
    fake = FakeWheel(recent=name == SESSION)
    reply = Reply(replaced(fake.content(), {name: bytes(UNPACKED)}, method))
    reason = "unpacks to more than" if method == zipfile.ZIP_DEFLATED else "another method"
    with memory_below(UNPACKED), pytest.raises(MachineError, match=reason):
        read(reply)


def test_read_wheel_of_an_understated_size(read: Read) -> None:
    name = f"{INFO}/METADATA"
    wheel = replaced(FakeWheel().content(), {name: bytes(UNPACKED)}, zipfile.ZIP_DEFLATED)
    with memory_below(UNPACKED // 2), pytest.raises(MachineError, match="or damaged"):
        read(Reply(understated(wheel, name)))


@pytest.mark.parametrize(("field", "value"), [(4, 8), (8, 0x800)], ids=["no content", "packed"])
@pytest.mark.parametrize("section", range(1, 6))
def test_library_with_a_section_of_any_size(section: int, field: int, value: int) -> None:
    """Its size, of a terabyte, is in its header alone, or in that of what is packed."""
    content = bytearray(FakeWheel().library())
    header = struct.unpack_from("<Q", content, 40)[0] + 64 * section
    struct.pack_into("<I", content, header + field, value)
    struct.pack_into("<Q", content, header + 32, 1 << 40)
    with pytest.raises((ValueError, ELFError)):
        Library(bytes(content))


def test_a_gpu_and_a_cpu_wheel_with_a_loader(read: Read) -> None:
    facts = read(FakeWheel())
    nvidia = ("libcublas.so.10", "libcuda.so.1", "libcudart.so.10.1", "libcudnn.so.7")
    assert (facts.libraries, facts.loading) == (nvidia, "opened")
    assert (facts.cuda_build, facts.cuda, facts.compiler) == (True, "10.1", "7.3.1")
    assert (facts.cxx11_abi, facts.glibc) == (0, "2.12")
    assert (facts.native, facts.ptx) == (("3.5", "7.0"), ("7.0",)), "read in the library itself"
    facts = read(FakeWheel(loader=CPU, build_info="is_cuda_build = False"))
    assert (facts.libraries, facts.loading, facts.cuda_build) == ((), "none", False)
    assert (facts.cuda, facts.capabilities) == ("", ())


def test_a_wheel_for_arm64_is_read_without_its_instructions(read: Read) -> None:
    """Where a function takes its strings from, only the code of x86-64 tells."""
    cpu = FakeWheel(
        "tensorflow",
        "2.18.1",
        compiler="Ubuntu Clang 17.0.3 (++2023",
        loader=CPU,
        build_info="is_cuda_build = False",
        tag="cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64",
        recent=True,
        machine=AARCH64,
    )
    facts = read(cpu)
    assert (facts.libraries, facts.loading, facts.cuda_build) == ((), "none", False)
    assert (facts.compiler, facts.machine) == ("clang-17.0.3", "aarch64")
    assert facts.platform_glibc == "2.17"
    for unknown in ("is_cuda_build = True", ""):
        with pytest.raises(MachineError, match="is not for x86-64"):
            read(replace(cpu, build_info=unknown))
    older = replace(cpu, recent=False, version="2.8.4", compiler="10.2.1 20210130 (Red Hat 10")
    assert read(older).compiler == "10.2.1"
    with pytest.raises(MachineError, match="names no compiler"):
        read(replace(older, compiler="10.2.1"))


def test_an_entry_of_a_fat_binary_may_lie_across_two_pieces() -> None:
    entry = struct.pack("<HHI20xI", 2, 0x101, 64, 70)
    for at in range(33):
        library = io.BytesIO(b"x" * (PIECE - at) + entry)
        assert compute_capabilities(library) == ("sm_70",)


def test_an_old_gpu_wheel_needs_its_libraries(read: Read) -> None:
    needed = ("libcudart.so.9.0", "libcudnn.so.7", "libfoo.so.1", "libc.so.6")
    facts = read(FakeWheel(loader={}, needed=needed, compiler="4.8.5"))
    assert (facts.libraries, facts.loading) == (("libcudart.so.9.0", "libcudnn.so.7"), "needed")
    assert (facts.compiler, facts.cuda) == ("4.8.5", "9.0")


def test_the_new_abi_the_capabilities_and_every_platform_tag(read: Read) -> None:
    info = "build_info = {'is_cuda_build': True, 'cuda_compute_capabilities': ['sm_35']}\n"
    own = ("_ZN10tensorflow3fooERKNSt7__cxx1112basic_stringIcEE",)
    both = ("cp36-cp36m-manylinux1_x86_64", "cp36-cp36m-manylinux2010_x86_64")
    tag = "cp36-cp36m-manylinux1_x86_64.manylinux2010_x86_64"
    facts = read(FakeWheel(own=own, build_info=info, tag=tag))
    assert (facts.cxx11_abi, facts.capabilities, facts.tags) == (1, ("sm_35",), both)


@pytest.mark.parametrize(
    ("compiler", "version"),
    [
        ("9.3.1 20200408", "9.3.1"),
        ("Ubuntu Clang 17.0.2 (++20231003073124)", "clang-17.0.2"),
        ("Clang 18.1.8", "clang-18.1.8"),
    ],
)
def test_a_wheel_as_from_2_9_on(read: Read, compiler: str, version: str) -> None:
    built = {"is_cuda_build": True, "cuda_version": "11.2", "cuda_compute_capabilities": ["sm_80"]}
    info = f"build_info = collections.OrderedDict({[*built.items()]})\n"
    recent = FakeWheel(compiler=compiler, loader=GPU_11_2, build_info=info, recent=True)
    facts = read(recent)
    nvidia = ("libcuda.so.1", "libcudart.so.11.0", "libcudnn.so.8", "libnvinfer.so.8.6.1")
    assert (facts.libraries, facts.loading) == (nvidia, "opened")
    assert (facts.compiler, facts.capabilities) == (version, ("sm_80",))
    assert (facts.cuda_build, facts.cuda) == (True, "11.2")
    for loader in (CPU, {**CPU, "NvInfer": "0"}):  # as 2.9.3 has it
        facts = read(replace(recent, loader=loader))
        assert (facts.libraries, facts.loading) == ((), "none")


@pytest.mark.parametrize("info", ["build_info = 5\n", "build_info = ['x']\n", NEVER_RUN])
def test_a_build_info_of_another_kind_says_nothing(read: Read, info: str) -> None:
    facts = read(FakeWheel(build_info=info))
    assert (facts.cuda_build, facts.cuda) == (None, "10.1")


WHEEL = FakeWheel().content()


def _answer(body: bytes, extent: str) -> Reply:
    return Reply(body, 206, headers={"Content-Range": f"bytes {extent}"}, ranges=False)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (Reply(b"PK\x03\x04" * 9, ranges=False), "ignores ranges"),
        (Reply(b"", 500, ranges=False), "answered 500"),
        (_answer(b"P", "5-5/999"), "for bytes 0-0 the server answered 206 with 1 bytes"),
        (_answer(b"PK", "0-0/9"), "with 2 bytes"),
        (_answer(b"<", "0-0/1"), "is not a TensorFlow wheel, or damaged"),
        (Reply(WHEEL.partition(b"PK\x05\x06")[0]), "is not a TensorFlow wheel, or damaged"),
        (Reply(WHEEL.replace(b"_framework", b"_framewerk")), "no /libtensorflow_framework.so"),
        (FakeWheel(code=()), "it loads CUDA and has no GPU code"),
        (FakeWheel(own=()), "exports nothing of the namespace tensorflow"),
        (FakeWheel(compiler="clang"), "has no compiler in tf_compiler_version"),
        (FakeWheel(compiler="clang", recent=True), "_pywrap_tf_session.so names no compiler"),
    ],
)
def test_what_is_no_wheel_of_tensorflow_or_not_served_by_ranges(
    read: Read, what: Reply | FakeWheel, text: str
) -> None:
    with pytest.raises(MachineError, match=text):
        read(what)
