"""Where each CPython is taken from."""

from pathlib import Path

from fake_programs import DEBIAN, FakePrograms

from imgbuild.doctor.finding import Finding, Status
from imgbuild.doctor.interpreters import (
    InterpreterState,
    Probes,
    check_interpreter,
    choose_interpreter,
    read_interpreter,
)
from imgbuild.settings import Interpreter, PrefixInterpreter, SourceInterpreter

URL = "https://example.org/Python-3.6.15.tar.xz"
LOCAL = Path("/opt/local")
MINE = Path("/opt/mine")
TOOLS = FakePrograms("patchelf", "strip")


def state(*prefixes: Path, problem: str | None = None) -> InterpreterState:
    return InterpreterState("3.6.15", URL, problem, prefixes)


def prefix(path: Path) -> PrefixInterpreter:
    return PrefixInterpreter(source="prefix", path=str(path))


def check(
    found: InterpreterState, way: Interpreter | None, programs: FakePrograms = TOOLS
) -> Finding:
    return check_interpreter(found, way, DEBIAN, programs, recorded=True)


def refuse(_url: str, _ca: str | None) -> None:
    raise OSError("no route")


def test_the_source_if_it_answers() -> None:
    found = read_interpreter("3.6.15", URL, None, None, Probes(lambda *_: None, lambda _: []))
    assert found == state()
    assert choose_interpreter(found, None) == SourceInterpreter()
    assert check(found, SourceInterpreter()).status is Status.FINE


def test_a_local_prefix_if_the_source_does_not_answer() -> None:
    probes = Probes(refuse, lambda _: [LOCAL], lambda _path, _version: None)
    found = read_interpreter("3.6.15", URL, None, None, probes)
    assert found == state(LOCAL, problem="no route")
    assert choose_interpreter(found, None) == prefix(LOCAL)
    assert choose_interpreter(found, SourceInterpreter()) == prefix(LOCAL)
    assert check(found, prefix(LOCAL)).status is Status.FINE


def test_a_prefix_that_is_not_complete_is_not_taken() -> None:
    probes = Probes(refuse, lambda _: [LOCAL], lambda path, _: f"{path} cannot import ssl.")
    found = read_interpreter("3.6.15", URL, None, None, probes)
    assert found.prefixes == ()
    row = check(found, choose_interpreter(found, None))
    assert row.status is Status.MISSING
    assert "cannot import ssl" in row.detail


def test_what_the_user_named_stays_while_it_is_valid() -> None:
    faults = {MINE: None, LOCAL: None}

    def read(named: Path) -> InterpreterState:
        def fault(path: Path, _version: str) -> str | None:
            return faults.get(path, "gone")

        probes = Probes(lambda *_: None, lambda _: [LOCAL], fault)
        return read_interpreter("3.6.15", URL, named, None, probes)

    assert choose_interpreter(read(MINE), prefix(MINE)) == prefix(MINE)
    gone = Path("/opt/gone")
    assert choose_interpreter(read(gone), prefix(gone)) == SourceInterpreter()


def test_neither_source_nor_prefix() -> None:
    row = check(state(problem="no route"), None)
    assert row.status is Status.MISSING
    assert "no route" in row.detail
    assert "cpython: {3.6.15: {from: prefix" in (row.mend or "")


def test_a_prefix_needs_tools() -> None:
    row = check(state(LOCAL), prefix(LOCAL), FakePrograms("strip"))
    assert (row.status, row.packages) == (Status.MISSING, ("patchelf",))
    assert row.mend == "apt-get install -y patchelf"


def test_a_choice_that_is_not_written_down_does_not_count() -> None:
    for way in (prefix(LOCAL), SourceInterpreter()):
        found = state(LOCAL, problem="no route")
        row = check_interpreter(found, way, DEBIAN, TOOLS, recorded=False)
        assert row.status is Status.MISSING
        assert (row.mend or "").endswith("doctor --write")
