"""Commands through an open shell: the answers are those of a shell of their own, and no hang."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import testinfra  # type: ignore[import-untyped]
from channel import (
    BROKEN,
    FLOODED,
    Answer,
    ChannelBackend,
    Shell,
    Shells,
    use_channels,
)

#: What /bin/sh is in the images; here it is started directly, without a container.
KINDS = {name: path for name in ("dash", "bash") if (path := shutil.which(name))}


@pytest.fixture(params=KINDS)
def argv(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return (KINDS[request.param], *(("--posix",) if request.param == "bash" else ()))


@pytest.fixture
def shells() -> Iterator[Shells]:
    opened = Shells()
    yield opened
    opened.close()


def fresh(command: bytes) -> Answer:
    """Return what a shell of its own answers."""
    ran = subprocess.run(
        [b"/bin/sh", b"-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    code = ran.returncode if ran.returncode >= 0 else 128 - ran.returncode
    return Answer(code, ran.stdout, ran.stderr)


@pytest.mark.parametrize(
    "command",
    [
        b"echo out; echo err >&2; exit 3",
        b"printf 'no line end'",
        b"printf '\\0\\1\\377\\n\\0'; printf '\\0\\376' >&2",
        b"printf '\xc3\xa4\xff'",
        b"cat; echo read; read x; echo $?",
        b"no-such-program",
        b"exit 255",
        b"kill -KILL $$",
        b"echo one\necho two\n",
        b"echo $0 $#; cd /; pwd; umask; ulimit -n",
        b"head -c 3000000 /dev/zero; head -c 200000 /dev/zero | tr '\\0' e >&2",
        b"yes | head -n 1",
        b"trap 'echo bye' EXIT; echo hello",
        b"ls -l /proc/self/fd | wc -l",
        b"sleep 30 >/dev/null 2>&1 & echo it is not waited for",
        b"",
    ],
)
def test_the_answer_is_that_of_a_shell_of_its_own(argv: tuple[str, ...], command: bytes) -> None:
    shell = Shell(argv)
    shell.run(b"cd /tmp; umask 077; X=1")  # leaves no trace
    assert shell.run(command) == fresh(command)
    assert shell.usable
    assert shell.run(b"kill -KILL 0").exit_code == 137, "it has a session of its own"
    assert shell.run(b"echo on").stdout == b"on\n"
    shell.close()


def test_the_environment_is_that_of_the_first_shell(
    shells: Shells, argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOO", "a b\nc")
    for name in ("SHLVL", "OLDPWD", "_", "PS1"):  # a bash that nobody types into unsets PS1
        monkeypatch.delenv(name, raising=False)
    command = b"env -u _ | sort"  # bash tells it in _ which program it starts
    assert shells.run(argv, command).stdout == fresh(command).stdout


def test_what_writes_on_in_the_background_is_waited_for_as_docker_does(
    shells: Shells, argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channel.LINGERING_SECONDS", 0.5)
    answer = shells.run(argv, b"echo now; (sleep 0.1; echo soon) & exit 4")
    assert answer == Answer(4, b"now\nsoon\n", b"")
    started = time.monotonic()
    late = shells.run(argv, b"echo now; (sleep 1.5; echo late) &")
    assert late == Answer(0, b"now\n", b"")
    assert time.monotonic() - started < 1.4
    # The late words must not be taken for those of a later command.
    assert shells.run(argv, b"sleep 1.2; echo mine").stdout == b"mine\n"


@pytest.mark.parametrize(("whole", "codes"), [(True, (0, 137)), (False, (137,))])
def test_a_command_that_kills_its_shell_fails_and_the_next_has_a_new_one(
    shells: Shells,
    argv: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    *,
    whole: bool,
    codes: tuple[int, ...],
) -> None:
    monkeypatch.setattr("channel.LINGERING_SECONDS", 0.5)
    shells.run(argv, b"true")
    (idle,) = shells._idle[argv]
    victim = idle._process.pid if whole else "$PPID"
    answer = shells.run(argv, f"echo before; kill -KILL {victim}; sleep 0.3".encode())
    # Without its shell the command may still come to its end, and its answer counts.
    assert answer.exit_code in codes
    assert answer.stdout == b"before\n"
    assert answer.exit_code == 0 or b"ended before the command did" in answer.stderr
    assert shells.run(argv, b"echo after").stdout == b"after\n"
    (idle,) = shells._idle[argv]
    idle._process.send_signal(signal.SIGKILL)  # between two commands
    assert shells.run(argv, b"echo here") == Answer(0, b"here\n", b"")


def test_a_container_that_cannot_be_used_says_so(shells: Shells) -> None:
    argv = ("/bin/sh", "-c", "echo 'no such container' >&2; exit 1")
    assert shells.run(argv, b"true") == Answer(1, b"", b"no such container", begun=False)


def test_commands_of_several_threads_do_not_wait_for_each_other(
    shells: Shells, argv: tuple[str, ...]
) -> None:
    started = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        commands = [f"sleep 0.5; echo {number}".encode() for number in range(3)]
        answers = [*pool.map(lambda command: shells.run(argv, command).stdout, commands)]
    assert time.monotonic() - started < 1.4
    assert answers == [b"0\n", b"1\n", b"2\n"]


def test_an_interrupted_commands_shell_is_given_up(shells: Shells, argv: tuple[str, ...]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            shells.run(argv, b"sleep 3; echo late")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert shells.run(argv, b"echo mine").stdout == b"mine\n"


def test_testinfra_takes_the_backend() -> None:
    use_channels()
    backend = testinfra.get_host("docker://someone@abc").backend
    assert isinstance(backend, ChannelBackend)
    assert (backend.name, backend.user) == ("abc", "someone")


@pytest.mark.parametrize("stream", [b"1", b"2"])
def test_a_command_that_prints_without_end_is_stopped(
    shells: Shells, argv: tuple[str, ...], stream: bytes
) -> None:
    answer = shells.run(argv, b"yes >&" + stream)
    assert (answer.exit_code, answer.stderr.decode()) == (BROKEN, FLOODED)
    assert shells.run(argv, b"echo still").stdout == b"still\n"
