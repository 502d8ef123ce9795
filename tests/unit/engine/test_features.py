"""The trial build, with a program that plays buildx."""

import platform
import struct
import subprocess
from pathlib import Path

import pytest

from imgbuild.core.errors import MachineError
from imgbuild.engine import features
from imgbuild.engine.types import StoredImage
from support import fake_buildx
from support.fake_engine import FakeEngine

BUILT = fake_buildx.metadata(features.MARK)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine([StoredImage(fake_buildx.IMAGE)])
    monkeypatch.setattr(features, "Engine", lambda _host: engine)
    return engine


def test_nothing_is_missing_and_nothing_stays(tmp_path: Path, engine: FakeEngine) -> None:
    buildx = fake_buildx.replaying(tmp_path, fake_buildx.SAMPLES / "ok", built=BUILT)
    assert features.broken_feature(buildx) is None
    assert engine.stored == {}
    assert engine.closed
    assert "not in the engine" in (features.broken_feature(buildx) or "")


def test_a_missing_feature_is_told_from_a_missing_engine(tmp_path: Path) -> None:
    broken = tmp_path / "broken.rawjson"
    buildx = fake_buildx.replaying(tmp_path, broken.with_suffix(""), code=1)
    broken.write_text("ERROR: failed to solve: unknown flag: link\n")
    assert features.broken_feature(buildx) == "unknown flag: link"
    broken.write_text("ERROR: Cannot connect to the Docker daemon at unix:///x.sock.\n")
    with pytest.raises(MachineError, match="cannot be reached"):
        features.broken_feature(buildx)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (f"exit code: {features.NO_AVX}", "no AVX, .* `Illegal instruction`"),
        ("exec /imgbuild-probe: exec format error", "run no program for linux/amd64"),
    ],
)
def test_a_machine_that_cannot_run_tensorflow(tmp_path: Path, cause: str, said: str) -> None:
    broken = tmp_path / "broken.rawjson"
    buildx = fake_buildx.replaying(tmp_path, broken.with_suffix(""), code=1)
    step = 'process "/imgbuild-probe" did not complete successfully'
    broken.write_text(f"ERROR: failed to solve: {step}: {cause}\n")
    with pytest.raises(MachineError, match=said):
        features.broken_feature(buildx)
    broken.write_text(f"ERROR: failed to solve: {step}: exit code: 1\n")
    assert features.broken_feature(buildx) == "exit code: 1"


def test_a_builder_without_an_emulator_says_how_to_get_one(tmp_path: Path) -> None:
    broken = tmp_path / "broken.rawjson"
    buildx = fake_buildx.replaying(tmp_path, broken.with_suffix(""), code=1)
    step = 'process "/imgbuild-probe" did not complete successfully'
    broken.write_text(f"ERROR: failed to solve: {step}: exec /imgbuild-probe: exec format error\n")
    with pytest.raises(MachineError, match=r"no program for linux/arm64.* qemu-user-static"):
        features.broken_feature(buildx, "linux/arm64")


def test_the_probe_for_arm64_is_a_program_for_arm64() -> None:
    """Its segment has the whole file, and ends with its code; the emulated tests run it."""
    program = features.ARM64_PROGRAM
    kind, machine = struct.unpack_from("<HH", program, 16)
    (entry,) = struct.unpack_from("<Q", program, 24)
    loaded, flags, offset, address, _, size, room, align = struct.unpack_from(
        "<IIQQQQQQ", program, 64
    )
    assert (kind, machine) == (2, 183), "ET_EXEC and EM_AARCH64"
    assert (loaded, flags, offset) == (1, 5, 0), "PT_LOAD, readable and executable"
    assert size == room == len(program)
    assert address % align == 0
    assert entry - address == len(program) - 3 * 4, "three instructions"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is for x86-64")
def test_the_processor_itself_is_asked(tmp_path: Path) -> None:
    """A bit that is never set stands in for AVX where there is AVX."""
    flags = Path("/proc/cpuinfo").read_text("utf-8").split()
    has_avx = 0 if "avx" in flags else features.NO_AVX
    changes = {"": "", "f7c100000018": "f7c100000100", "a806": "a880"}  # ECX; XCR0
    codes = []
    for number, (asked, reserved) in enumerate(changes.items()):
        text = features.PROBE_PROGRAM.hex()
        assert not asked or text.count(asked) == 1
        program = tmp_path / str(number)
        program.write_bytes(bytes.fromhex(text.replace(asked, reserved)))
        program.chmod(0o755)
        codes.append(subprocess.run([str(program)], check=False).returncode)
    assert codes == [has_avx, features.NO_AVX, features.NO_AVX]
