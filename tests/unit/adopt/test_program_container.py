"""The container of a program and its output, with a client that notes its words."""

import json
import os
import tarfile
import time
from pathlib import Path

import pytest

from imgbuild.adopt import program_container
from imgbuild.adopt.program_container import (
    MEMORY_BYTES,
    NOTEBOOK,
    SUPERVISOR,
    WORK,
    Program,
    _Lines,
    _Reports,
    run_container,
)
from imgbuild.core.errors import MachineError
from imgbuild.core.process import TIMED_OUT
from imgbuild.engine.types import GpuRequest
from imgbuild.suites.container import CONTAINER_LABEL, make_label

CLIENT = """\
#!/bin/sh
echo "$@" >> {folder}/notes
case $1 in
    create) {create} ;;
    cp) cat > {folder}/archive.tar; {copy} ;;
    start) {start} ;;
esac
"""


class Client:
    """A docker client that runs nothing. ``start`` are shell commands with the mark as $MARK."""

    def __init__(self, folder: Path, start: str, create: str = "true", copy: str = "true") -> None:
        self.folder = folder
        find = f"MARK=$(sed -n 's/.* supervise \\([0-9a-f]*\\) .*/\\1/p' {folder}/notes); "
        text = CLIENT.format(folder=folder, create=create, copy=copy, start=find + start)
        (folder / "docker").write_text(text)
        (folder / "docker").chmod(0o755)

    @property
    def notes(self) -> list[str]:
        return (self.folder / "notes").read_text().splitlines()

    def program(self, **facts: object) -> Program:
        code = self.folder / "code"
        code.mkdir()
        (code / "main.py").write_text("print(1)\n")
        client = (str(self.folder / "docker"),)
        program = Program(client, "image:1", code, f"{WORK}/main.py", "1000:1000")
        return Program(**{**vars(program), **facts})


def report(**facts: object) -> str:
    text = json.dumps(facts)
    return f"printf '\\036'$MARK'.{text}\\036' >&2"


def test_container_has_limits_and_is_removed(tmp_path: Path) -> None:
    client = Client(tmp_path, report(event="ended", code=0))
    program = client.program(variables={"A": "b c"}, arguments=("--x", "1"), tag="adopted/churn:1")
    ran = run_container(program)
    assert ran.reports == ({"event": "ended", "code": 0},)
    assert ran.names == {"main.py"}
    create, copy, start, remove = client.notes
    for words in (
        "--rm --pull never",
        "--network none",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--user 1000:1000",
        "--pids-limit",
        f"--memory-swap {MEMORY_BYTES}",
        "--log-driver none",
        "--env A=b c",
        f"--label {CONTAINER_LABEL}={make_label('adopted-churn-1')}",
    ):
        assert f" {words}" in create
    assert "--volume" not in create
    assert "--mount" not in create
    name = copy.split()[-1].removesuffix(":/")
    assert start == f"start --attach {name}"
    assert remove == f"rm --force --volumes {name}"


def test_container_gets_the_code_and_the_runner(tmp_path: Path) -> None:
    client = Client(tmp_path, report(event="ended", code=0))
    program = client.program(package_name="mine")
    run_container(program)
    with tarfile.open(tmp_path / "archive.tar") as archive:
        members = {member.name: member for member in archive.getmembers()}
        settings = archive.extractfile("imgbuild-adopt/settings.json")
        assert settings
        assert json.load(settings)["program"] == f"{WORK}/main.py"
    for name in (SUPERVISOR, NOTEBOOK):
        assert members[f"imgbuild-adopt/{name}"].mode == 0o644
    assert members["imgbuild-adopt/home"].mode == 0o777
    assert members["packages/mine"].linkname == WORK
    assert "work/main.py" in members


def test_network_is_given_if_asked(tmp_path: Path) -> None:
    client = Client(tmp_path, report(event="ended", code=0))
    run_container(client.program(network=True))
    assert "--network" not in client.notes[0]


@pytest.mark.parametrize(
    ("gpus", "options"),
    [
        (None, "--env NVIDIA_VISIBLE_DEVICES=void"),
        ("nvidia", "--gpus all"),
        ("cdi", "--device nvidia.com/gpu=all"),
    ],
)
def test_gpus_are_given_as_the_engine_offers_them(
    tmp_path: Path, gpus: GpuRequest | None, options: str
) -> None:
    client = Client(tmp_path, report(event="ended", code=0))
    run_container(client.program(gpus=gpus))
    create = client.notes[0]
    assert f" {options} " in create
    assert ("NVIDIA_VISIBLE_DEVICES" in create) == (gpus is None)


def test_lines_are_passed_on_without_reports(tmp_path: Path) -> None:
    words = "printf 'one\\ntwo\\rthree\\033[1m\\n'; printf 'warning' >&2; "
    words += report(event="imports") + "; printf ' end\\nfour' >&2"
    lines: list[str] = []
    ran = run_container(Client(tmp_path, words).program(), lines.append)
    assert sorted(lines) == sorted(["one", "two", "three\\u001b[1m", "warning end", "four"])
    assert ran.errors == "warning end\nfour"


def test_output_is_bounded(tmp_path: Path) -> None:
    words = "head -c 30000000 /dev/zero; yes long | head -c 3000000; " + report(event="x")
    lines: list[str] = []
    ran = run_container(Client(tmp_path, words).program(), lines.append)
    assert len(ran.output) <= 1 << 16
    assert len(lines) <= 20_000
    assert ran.reports == ({"event": "x"},)


def test_engine_faults_are_errors(tmp_path: Path) -> None:
    client = Client(tmp_path, "true", create="echo 'No such image' >&2; exit 1")
    with pytest.raises(MachineError, match="No such image"):
        run_container(client.program())
    assert client.notes[-1].startswith("rm --force")
    (other := tmp_path / "other").mkdir()
    with pytest.raises(MachineError, match="no space"):
        run_container(Client(other, "echo 'no space' >&2; exit 125").program())
    (full := tmp_path / "full").mkdir()
    with pytest.raises(MachineError, match="copy of the program: full disk"):
        run_container(Client(full, "true", copy="echo 'full disk' >&2; exit 1").program())
    (missing := tmp_path / "missing").mkdir()
    client = Client(missing, "true")
    with pytest.raises(MachineError, match="cannot be read"):
        run_container(client.program(repository=missing / "none"))
    assert client.notes[-1].startswith("rm --force")


def test_exit_code_of_a_program_is_no_engine_fault(tmp_path: Path) -> None:
    client = Client(tmp_path, report(event="ended", code=126) + "; exit 126")
    assert run_container(client.program()).code == 126


def test_container_that_does_not_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_container, "IMPORT_SECONDS", 0)
    monkeypatch.setattr(program_container, "_ENGINE_SECONDS", 1)
    monkeypatch.setattr(program_container, "_GRACE_SECONDS", 0.2)
    ran = run_container(Client(tmp_path, "echo line; sleep 60").program(seconds=0))
    assert (ran.code, ran.output) == (TIMED_OUT, "line\n")


def test_interrupt_removes_the_container(tmp_path: Path) -> None:
    client = Client(tmp_path, "echo line; exec sleep 60")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_container(client.program(), interrupt)
    assert client.notes[-1].startswith("rm --force --volumes imgbuild-adopt-")
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_reports_are_found_in_any_pieces(size: int) -> None:
    reports = _Reports("abcd")
    data = b'one\x1eabcd+{"a":\x1etwo\x1eabcd. "b"}\x1e\x1ethree\x1eab\x1eabcd.[\x1e'
    own = bytearray()
    for at in range(0, len(data), size):
        own += reports.take(data[at : at + size])
    assert bytes(own) == b"onetwo\x1ethree\x1eab"
    assert reports.reports == [{"a": "b"}]


def test_reports_ignore_what_never_ends() -> None:
    reports = _Reports("abcd")
    reports.take(b"\x1eabcd." + b"x" * 100_000)
    assert len(reports._pending) <= 1 << 13
    for _ in range(1000):
        reports.take(b"\x1eabcd+" + b"x" * 8000 + b"\x1e")
    assert len(reports._pieces) < 5 << 20
    reports.take(b"\x1eabcd.\x1e")
    for _ in range(300):
        reports.take(b'\x1eabcd.{"a": 1}\x1e')
    assert len(reports.reports) == 100


def test_lines_are_bounded() -> None:
    lines: list[str] = []
    stream = _Lines(lines.append)
    for _ in range(100):
        stream.take(b"x" * 10_000)
    stream.take(os.linesep.encode())
    assert [len(line) for line in lines] == [2000]
    assert len(stream.tail) == 1 << 16
