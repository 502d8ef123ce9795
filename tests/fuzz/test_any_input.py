"""Any matrix, settings, locks and command line: taken, or refused in one paragraph.

Hypothesis damages the files of a copy of this checkout and makes up command lines. Commands run in
this process, without an engine and without a network. It takes minutes: `make nightly`.
"""

import copy
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from typer.main import get_command

from imgbuild.cli import app, main, register
from imgbuild.core.errors import MachineError
from imgbuild.core.project import Project
from imgbuild.net.http import RetryPolicy
from support.project_copy import copied

pytestmark = pytest.mark.nightly

SOURCE = Project(Path(__file__).parents[2])
ONE, OTHER = "tf-2.2-cpu-debian", "tf-2.2-gpu-ubuntu"
#: So many cases of each kind: 2,000 and more in all.
MATRICES, SETTINGS, LOCKS, COMMANDS = 500, 500, 500, 600
MATRIX = yaml.load(SOURCE.matrix.read_bytes(), Loader=yaml.CBaseLoader)  # noqa: S506 - all of it text
LOCK_FILES = sorted(path.relative_to(SOURCE.root) for path in SOURCE.locks.rglob("*.txt"))
#: Every section once; what it names need not exist.
EVERY_SETTING: dict[str, Any] = {
    "engine": {"host": "unix:///nonexistent/docker.sock"},
    "base": {"debian-12": {"from": "layout", "path": "/nonexistent"}},
    "cpython": {"3.6.15": {"from": "prefix", "path": "/nonexistent"}},
    "mirrors": {
        "debian": "https://mirror.example.org/debian/",
        "nvidia-cuda": {"url": "https://mirror.example.org/cuda/", "keyring": "/nonexistent"},
    },
    "ca_bundle": "/nonexistent",
    "netrc": "/nonexistent",
    "registry": "registry.example.org/hub",
    "substitutes": {"Python-3.6.15.tar.xz": "a" * 64},
    "publishing": {"repository": "registry.example.org/ml", "attempts": 2, "first_wait": 1},
    "standin": {"note": "a test", "versions": {"python": "3.6.15"}},
}
WORDS = st.sampled_from(
    [
        *("2.2", "1.10", "2.2.0", "02.2", "9" * 5000, "debian", "ubuntu", "cpu", "openmpi", ONE),
        *("", " ", "-", "--", "=", "x=y", "tf=2.2", "0", "-1", "1/2", "0/0", "HEAD", "0" * 40),
        *("json", "pins", "gpu_runs", "20261120.1", "sha256:" + "0" * 64, "90s", "1h" * 9),
        *("../..", "/dev/null", "/dev/zero", "images", "matrix.yaml", "nowhere", "a" * 300),
        *("unix:///x", "tcp://[::1", "http://[::1", "https://u:p@127.0.0.1:1/x", "127.0.0.1:1/x"),
        *("debian=https://mirror.example.org/", "{{ 1 // 0 }}", "*", "[", "\\", "'", "$(false)"),
        *("\x1b[31mX", "\u202eX", "\ud800", "é", "a,from=os"),
    ]
) | st.text(st.characters(exclude_characters="\0/"), max_size=12)
VALUES = (
    WORDS
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.sampled_from(
        [[], {}, [[]], ["cpu", "cpu"], {"version": "1"}, {"a": {"b": []}}, "x" * 9999]
    )
)
PIECES = (
    *(b"", b"\0", b"\r", b"\t", b"\\\n", b"\xff", b"\n\n", "\u2028".encode()),
    *(b"{", b"- ", b"&a ", b"*a", b"!!x ", b"<<: ", b"---\n"),
    *(b"==", b"--hash=", b"#", b"; python_version<'3'"),
)
#: What neither a test may do nor a machine can be asked: a shell's completion, another checkout.
NOT_TRIED = {"--install-completion", "--show-completion", "--project"}
#: Without these, some commands ask the network for minutes.
ALWAYS = {"lock": ["--check"], "audit": ["--offline"]}
#: It judges the machine, and calls its programs.
NO_COMMANDS = {"doctor"}

register(app)
GROUP: Any = get_command(app)


# --- a checkout to damage -------------------------------------------------------------------------


class Checkout:
    """A copy of this checkout, which is as it was after each command."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        self._environment = environment
        self._files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def run(self, *words: str, **damaged: bytes) -> None:
        """Run a command line where files, by path, have other contents; fail if it ends badly."""
        for name, content in damaged.items():
            (self.root / name).write_bytes(content)
        before = self._state()
        try:
            self._run(words, before)
        finally:
            self._restore()

    def _run(self, words: tuple[str, ...], before: dict[Path, object]) -> None:
        note(f"imgbuild {words}")
        said = StringIO()
        with (
            patch.dict(os.environ, self._environment),
            patch.object(sys, "argv", ["imgbuild", *words]),
            redirect_stdout(StringIO()),
            redirect_stderr(said),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        text = said.getvalue()
        note(f"exit code {ended.value.code}: {text}")
        assert ended.value.code in {0, 1, 2, 3}
        assert "imgbuild itself failed" not in text
        if ended.value.code == 2:
            assert "\n\n" not in text.partition("imgbuild: ")[2].strip(), "more than a paragraph"
            assert self._state() == before, "something was changed"

    def _state(self) -> dict[Path, object]:
        return {
            path: None if path.is_dir() else (path.lstat().st_mtime_ns, path.lstat().st_ino)
            for path in self.root.rglob("*")
        }

    def _restore(self) -> None:
        for path in sorted(self.root.rglob("*")):
            if not path.is_dir() and path not in self._files:
                path.unlink()
        for path, content in self._files.items():
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    folder = tmp_path_factory.mktemp("fuzz")
    root = copied(SOURCE, folder / "some" / "where" / "checkout", "pyproject.toml").root
    own = {name: str(folder / name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")}
    own |= {"DOCKER_HOST": "unix:///nonexistent/docker.sock", "DOCKER_CONFIG": str(folder)}
    own |= {"UV_OFFLINE": "1", "GIT_CEILING_DIRECTORIES": str(root.parent)}
    with pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("IMGBUILD_")]:
            patched.delenv(name)
        patched.chdir(root)
        patched.setattr(socket.socket, "connect", _refuse_and_close)
        patched.setattr(socket, "getaddrinfo", _refused)
        patched.setattr("imgbuild.build.bases.bootstrap_base", _no_base)
        patched.setattr("imgbuild.cli.register", lambda *_: None)  # it has been
        patched.setattr(signal, "signal", lambda *_: None)
        patched.setattr(RetryPolicy, "wait", lambda *_: inf)
        yield Checkout(root, own)
    shutil.rmtree(folder)


def _refused(*_: object, **__: object) -> NoReturn:
    raise ConnectionRefusedError("there is no network in this test")


def _refuse_and_close(refused: socket.socket, *_: object) -> NoReturn:
    """Refuse a connection. Docker's library leaves a socket open that does not connect."""
    refused.close()
    _refused()


def _no_base(*_: object, **__: object) -> NoReturn:
    raise MachineError("there is no network in this test")


def cases(count: int) -> settings:
    """Return how many cases are tried; nothing of them is kept in the checkout."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=checks,
    )


# --- what is tried --------------------------------------------------------------------------------


def _places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value of a document."""
    if at:
        yield at
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _places(one, (*at, number))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@st.composite
def documents(draw: st.DrawFn, whole: dict[str, Any]) -> bytes:
    """Return YAML of which up to three values are taken away, replaced, moved or renamed."""
    document = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        places = [*_places(document)]
        if not places:
            break
        place = draw(st.sampled_from(places))
        parent, key = _at(document, place[:-1]), place[-1]
        change = draw(st.sampled_from(["take", "replace", "replace", "move", "rename"]))
        if change == "take":
            del parent[key]
        elif change == "replace":
            parent[key] = draw(VALUES)
        elif change == "move":
            parent[key] = copy.deepcopy(_at(document, draw(st.sampled_from(places))))
        elif isinstance(parent, dict):
            parent[draw(WORDS)] = parent.pop(key)
        else:
            parent.insert(key, copy.deepcopy(parent[key]))
    text = yaml.dump(document, Dumper=yaml.SafeDumper, allow_unicode=True, sort_keys=False)
    return text.encode("utf-8", "surrogatepass")


@st.composite
def texts(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return a text in which a piece is another one."""
    start = draw(st.integers(0, len(whole)))
    end = min(len(whole), start + draw(st.integers(0, 80)))
    pieces = st.sampled_from([*PIECES, whole[end : end + 100]]) | st.binary(max_size=20)
    return whole[:start] + draw(pieces) + whole[end:]


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Return options and arguments of a command, some of which have odd values."""
    name = draw(st.sampled_from(sorted({*GROUP.commands} - NO_COMMANDS)))
    words = [*_options(draw, GROUP.params), name, *ALWAYS.get(name, ())]
    words += _options(draw, GROUP.commands[name].params)
    for parameter in GROUP.commands[name].params:
        if parameter.param_type_name == "argument" and draw(st.integers(0, 9)):
            words.append(draw(WORDS))
    return words


def _options(draw: st.DrawFn, parameters: list[Any]) -> list[str]:
    known = [one for one in parameters if one.param_type_name == "option"]
    known = [one for one in known if not NOT_TRIED & {*one.opts}]
    words = []
    for option in draw(st.lists(st.sampled_from(known), max_size=3)) if known else ():
        words.append(draw(st.sampled_from([*option.opts, *option.secondary_opts])))
        if not getattr(option, "is_flag", False):
            words.append(draw(WORDS))
    return words


# --- the promise ----------------------------------------------------------------------------------


@cases(MATRICES)
@given(
    content=documents(MATRIX) | texts(SOURCE.matrix.read_bytes()),
    words=st.sampled_from(
        [
            *(["list", "--json"], ["render"], ["render", "--check"], ["lock", "--check"]),
            *(["show", ONE], ["show", OTHER], ["matrix"]),
            *(["audit", "--offline"], ["build", "--all", "--dry-run"]),
        ]
    ),
)
def test_any_matrix(checkout: Checkout, content: bytes, words: list[str]) -> None:
    checkout.run(*words, **{"matrix.yaml": content})


@cases(SETTINGS)
@given(
    content=documents(EVERY_SETTING) | texts(yaml.safe_dump(EVERY_SETTING).encode()),
    words=st.sampled_from([["matrix", ONE, OTHER], ["matrix", "--missing"], ["release", "list"]]),
)
def test_any_settings(checkout: Checkout, content: bytes, words: list[str]) -> None:
    checkout.run(*words, **{"imgbuild.local.yaml": content})


@cases(LOCKS)
@given(
    lock=st.sampled_from(LOCK_FILES).flatmap(
        lambda path: st.tuples(st.just(path), texts((SOURCE.root / path).read_bytes()))
    ),
    words=st.sampled_from(
        [
            ["lock", "--check"],
            ["render"],
            ["matrix"],
            ["audit", "--offline"],
            ["show", ONE],
        ]
    ),
)
def test_any_lock(checkout: Checkout, lock: tuple[Path, bytes], words: list[str]) -> None:
    checkout.run(*words, **{str(lock[0]): lock[1]})


@cases(COMMANDS)
@given(words=command_lines())
def test_any_command_line(checkout: Checkout, words: list[str]) -> None:
    checkout.run(*words)
