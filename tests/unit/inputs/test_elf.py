"""Names inside binaries: replaced at equal length, with merged strings intact."""

import shutil
from pathlib import Path

import pytest

from imgbuild.errors import MachineError
from imgbuild.inputs.elf import (
    is_elf,
    replace_in_strings,
    require_elf_tools,
    set_search_path,
    strip,
)

OLD = "/home/someone/versions/3.6.15"
NEW = "/opt/python"


def c_string(content: bytes, offset: int) -> bytes:
    return content[offset : content.index(b"\0", offset)]


def test_string_that_is_the_name_becomes_the_new_name() -> None:
    content = replace_in_strings(b"x\0" + OLD.encode() + b"\0y", OLD, NEW)
    assert c_string(content, 2) == b"/opt/python"
    assert b"someone" not in content


def test_merged_version_string_survives() -> None:
    """The linker lets PY_VERSION point at the end of PREFIX; it must still read 3.6.15."""
    before = OLD.encode() + b"\0"
    version_at = before.index(b"3.6.15")
    after = replace_in_strings(before, OLD, NEW)
    assert len(after) == len(before)
    assert c_string(after, version_at) == b"3.6.15"


def test_longer_string_keeps_its_tail_in_place() -> None:
    before = b"A=" + OLD.encode() + b"/lib:" + OLD.encode() + b"/bin\0"
    after = replace_in_strings(before, OLD, NEW)
    assert len(after) == len(before)
    assert after.index(b"/lib") - before.index(b"/lib") == 0
    assert Path(after[2 : before.index(b":")].decode()) == Path("/opt/python/lib")


def test_similar_name_is_another_name() -> None:
    other = OLD.encode() + b"0/lib\0" + OLD.encode() + b".bak\0"
    assert replace_in_strings(other, OLD, NEW) == other


@pytest.mark.parametrize("old", ["/py/3.6", "/a/3.6.15", "/srv/3.6.15", "/opt/python", "/p"])
def test_name_too_short_for_the_target_never_moves_a_byte(old: str) -> None:
    before = b"x" + old.encode() + b"\0y" + old.encode() + b"/lib\0z"
    after = replace_in_strings(before, old, "/opt/python")
    assert len(after) == len(before)
    assert old.encode() not in after
    assert after.endswith(b"/lib\0z")


def test_programs_are_told_from_scripts(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert is_elf(Path("/proc/self/exe"))
    assert not is_elf(script)


def test_missing_tools_come_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="apt-get install -y binutils patchelf"):
        require_elf_tools()


@pytest.mark.parametrize("work", [strip, lambda files: set_search_path(files, "$ORIGIN")])
def test_failing_tool_is_reported(
    work: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("strip", "patchelf"):
        (tmp_path / tool).write_text("#!/bin/sh\necho not an ELF executable >&2; exit 1\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert callable(work)
    with pytest.raises(MachineError, match="not an ELF executable"):
        work([tmp_path / "broken"])


def test_search_path_is_replaced_without_a_trace(tmp_path: Path) -> None:
    for tool in ("strip", "patchelf"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    program = tmp_path / "program"
    shutil.copyfile(shutil.which("true") or "/bin/true", program)
    strip([program])
    set_search_path([program], "/home/someone/lib")
    assert b"/home/someone/lib" in program.read_bytes()
    set_search_path([program], "$ORIGIN/../lib")
    assert b"/home/someone/lib" not in program.read_bytes()
    assert b"$ORIGIN/../lib" in program.read_bytes()
