"""``build/setup/engine.sh`` with programs of the test in front of PATH: nothing is installed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "build" / "setup" / "engine.sh"
#: Answers where a file stands for the engine; is the context default without DOCKER_HOST.
DOCKER = """\
host=${DOCKER_HOST:-unix:///var/run/docker.sock}
if [ "$1" = --host ]; then host=$2; shift 2; fi
case $1 in
    version) test -e "$ANSWERING/$(basename "${host#*//}")" ;;
    context) echo "$host" ;;
esac
"""
#: Answers where an engine is named.
ONLY_NAMED = '[ "$1" != version ]\n'
#: An engine: a file answers for it until it is stopped.
DOCKERD = """\
if [ "$1" = --version ]; then echo "Docker version $VERSION, build 1"; exit; fi
exec -a dockerd "$PYTHON" -c 'if True:
    import os, pathlib, signal
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    socket = pathlib.Path(os.environ["ANSWERING"], "docker.sock")
    socket.with_suffix(".new").write_text(str(os.getpid()))
    socket.with_suffix(".new").rename(socket)
    signal.sigwait([signal.SIGTERM])
    socket.unlink()
' "$@"
"""
APT = """\
echo "$@" >> "$CALLS"
case "$*" in
    indextargets*) echo "http://deb.example/debian/ bookworm" ;;
    *bad*) exit 1 ;;
    *--simulate*docker.io/sid*) echo "Inst libc6 [2.36] (2.42 sid)" ;;
    *--simulate*) echo "Inst docker.io (28 forky)"; echo "Inst runc [1.1] (1.3 forky)" ;;
esac
"""

Engine = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the programs, and a copy of the script in a checkout."""
    (tmp_path / "bin").mkdir()
    programs = {"docker": DOCKER, "dockerd": DOCKERD, "apt-get": APT, "id": "echo 0"}
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)
    (tmp_path / "checkout" / "build" / "setup").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "checkout" / "build" / "setup" / "engine.sh")
    (tmp_path / "answering").mkdir()
    return tmp_path


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    """Return how to call the script; ``hosts`` are the names of sockets that answer."""

    def call(
        *words: str, hosts: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        for name in hosts:
            (folder / "answering" / name).touch()
        environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "ANSWERING": str(folder / "answering"),
            "CALLS": str(folder / "calls"),
            "VERSION": "28.5.2",
            "PYTHON": sys.executable,
            "IMGBUILD_ENGINE_STATE": str(folder / "state"),
            "IMGBUILD_ENGINE_RUN": str(folder / "run"),
            # So that an engine of this machine does not count as another one.
            "IMGBUILD_DOCKERD_OPTIONS": "--bridge=none",
            "IMGBUILD_POLICY_RC": str(folder / "policy-rc.d"),
            "TMPDIR": str(folder),
            **variables,
        }
        script = folder / "checkout" / "build" / "setup" / "engine.sh"
        return subprocess.run(
            [script, *words], env=environment, capture_output=True, text=True, check=False
        )

    yield call
    call("stop")


def test_shellcheck_passes_the_script() -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    subprocess.run([shellcheck, SCRIPT], check=True)


@pytest.mark.parametrize("host", ["unix:///var/run/docker.sock", "tcp://build"])
def test_an_engine_that_answers_is_used(engine: Engine, folder: Path, host: str) -> None:
    result = engine(hosts=(Path(host).name,), DOCKER_HOST=host)
    assert (result.returncode, result.stdout) == (0, f"{host}\n"), result.stderr
    assert not (folder / "state").exists()


def test_a_named_engine_is_not_replaced(engine: Engine, folder: Path) -> None:
    (folder / "checkout" / "imgbuild.local.yaml").write_text("engine:\n  host: tcp://away\n")
    result = engine()
    assert result.returncode == 3
    assert "the engine at tcp://away does not answer" in result.stderr
    assert not (folder / "state").exists()


def test_two_engines_do_not_share_a_bridge(engine: Engine, folder: Path) -> None:
    other = folder / "bin" / "dockerd"
    process = subprocess.Popen(
        [other, "--other"],
        env={**os.environ, "ANSWERING": str(folder / "bin"), "PYTHON": sys.executable},
    )
    try:
        result = engine(IMGBUILD_DOCKERD_OPTIONS="", DOCKER_HOST=f"unix://{folder}/run/docker.sock")
    finally:
        process.terminate()
        process.wait()
    assert result.returncode == 3
    assert "another Docker engine runs here" in result.stderr


def test_what_is_missing_comes_from_a_suite_that_changes_nothing_else(
    engine: Engine, folder: Path
) -> None:
    if "ubuntu" in Path("/etc/os-release").read_text().lower():
        pytest.xfail("Ubuntu has its own packages")
    result = engine(VERSION="20.10.24", DOCKER_HOST=f"unix://{folder}/run/docker.sock")
    calls = (folder / "calls").read_text()
    assert "It would change libc6" in result.stderr
    assert "docker.io/forky docker-cli/forky docker-buildx/forky iptables" in calls
    assert "-yq" in calls.splitlines()[-1]
    assert not [line for line in calls.splitlines() if "/trixie" in line]


def test_a_plain_user_installs_and_starts_nothing(engine: Engine, folder: Path) -> None:
    (folder / "bin" / "id").write_text("#!/bin/bash\necho 1000\n")
    result = engine(hosts=("docker.sock",))
    assert (result.returncode, result.stdout) == (0, "unix:///var/run/docker.sock\n")
    (folder / "answering" / "docker.sock").unlink()
    result = engine()
    assert (result.returncode, "sudo usermod -aG docker" in result.stderr) == (3, True)
    result = engine(VERSION="20.10.24")
    assert (result.returncode, "must be installed: sudo " in result.stderr) == (3, True)
    (folder / "bin" / "docker").write_text(f"#!/bin/bash\n{ONLY_NAMED}")
    result = engine(VERSION="20.10.24")
    own = f"unix://{folder}/run/docker.sock"
    assert (result.returncode, result.stdout) == (0, f"{own}\n"), "root has started it"
    assert not (folder / "calls").exists()
    assert not (folder / "state").exists()


def test_mounts_of_an_engine_that_was_killed_are_in_nobodys_way(folder: Path) -> None:
    """A dockerd mounts its data folder on itself, and takes that back where it ends itself."""
    apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody but root mount a file system of their own")
    state, script = folder / "state", folder / "checkout" / "build" / "setup" / "engine.sh"
    data = state / "docker"
    (data / "overlay2").mkdir(parents=True)
    mounts = f"mount --bind {data} {data} && mount -t tmpfs none {data}/overlay2"
    command = f"{mounts} && {script} stop --store graph && ! findmnt -rno TARGET | grep {state}/"
    variables = {
        "IMGBUILD_ENGINE_STATE": str(state),
        "IMGBUILD_ENGINE_RUN": str(folder / "run"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    subprocess.run([*apart, "bash", "-c", command], env=variables, check=True)
    assert not state.exists()
