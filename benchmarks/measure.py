"""Measure whole processes in interleaved rounds, and write Markdown tables to docs/evidence.md."""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence.md"
#: Some benchmarks use what helps the tests.
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "image")]
IMGBUILD = str(Path(sys.executable).with_name("imgbuild"))
DOCKER = shutil.which("docker") or "docker"
BRIDGE, NETWORK = "imgbuild-bench", "10.213.77"
ADDRESS = "02:42:0a:d5:4d:01"
#: The networks that suites make in it, one of 256 addresses each.
POOL = "10.213.128.0/17"


def nothing() -> None:
    """Prepare or check nothing."""


@dataclass(frozen=True)
class Contestant:
    """A command; ``prepare`` and ``check`` run before and after it and are not measured."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] | None = None
    prepare: Callable[[], None] = nothing
    check: Callable[[], None] = nothing


def compare(
    contestants: Sequence[Contestant], rounds: int, warmups: int = 1
) -> dict[str, list[float]]:
    """Return the seconds of each contestant, round by round; A B C, then C B A.

    Raises:
        RuntimeError: a command failed; a failed run has no time.

    """
    seconds: dict[str, list[float]] = {one.name: [] for one in contestants}
    for number in range(-warmups, rounds):
        for one in contestants if number % 2 else reversed(contestants):
            one.prepare()
            started = time.perf_counter()
            run(one.command, one.env)
            taken = time.perf_counter() - started
            one.check()
            print(f"{one.name}: round {number + 1} of {rounds}: {taken:.2f} s", file=sys.stderr)
            if number >= 0:
                seconds[one.name].append(taken)
    return seconds


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Return the output of a program; RuntimeError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=ROOT)
    if done.returncode:
        words = f"{' '.join(command[:6])} …"
        raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def timing_table(seconds: Mapping[str, list[float]], base: str) -> str:
    """Return median, range and ratio; the ratio is the median of the rounds' ratios to ``base``."""
    rows = []
    for name, one in seconds.items():
        ratios = [own / other for own, other in zip(one, seconds[base], strict=True)]
        spread = f"{min(one):.2f}–{max(one):.2f}"
        median = f"{statistics.median(one):.2f}"
        rows.append((name, median, spread, f"{statistics.median(ratios):.2f}"))
    count = len(seconds[base])
    return table(("command", "seconds", f"range of {count} rounds", f"× {base}"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def publish(name: str, text: str, *, write: bool, timed: bool = True) -> None:
    """Print a table with the command that gives it, or write both into docs/evidence.md.

    Where nothing was ``timed``, the machine is of no interest.
    """
    words = [f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]
    text = f"`python {' '.join(words)}`:\n\n{text}"
    print(f"{machine()}\n\n{text}")
    if write:
        page = EVIDENCE.read_text(encoding="utf-8")
        for block, content in (("machine", machine() + "\n"),) * timed + ((name, text),):
            begin, end = f"<!-- table: {block} -->\n", "<!-- end -->"
            before, _, rest = page.partition(begin)
            page = before + begin + content + end + rest.partition(end)[2]
        EVIDENCE.write_text(page, encoding="utf-8")


def machine() -> str:
    """Return one line about the machine and the revision."""
    revision = run(["git", "describe", "--always"]).strip()
    if run(["git", "status", "--porcelain", "--", ".", ":!docs/evidence.md"]):
        revision += "-dirty"
    kernel = ".".join(platform.release().split(".")[:2])
    version = f"Python {platform.python_version()}, Linux {kernel}"
    today = time.strftime("%Y-%m-%d")
    return f"{today}, revision {revision}: {os.cpu_count()} cores, {version}."


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the table to docs/evidence.md")
    return parser


def forget_images(env: Mapping[str, str]) -> None:
    """Remove all images of an engine but its bases, and all layers; downloads stay."""
    command = [DOCKER, "image", "ls", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"]
    images = [line.split() for line in run(command, env).splitlines()]
    ids = {image_id for name, image_id in images if not name.startswith("imgbuild/base")}
    if ids:
        run([DOCKER, "image", "rm", "--force", *ids], env)
    run([DOCKER, "buildx", "prune", "--filter=type=regular", "--all", "--force"], env)


@contextmanager
def scratch_engine(*, containerd: bool = False) -> Iterator[tuple[dict[str, str], Path]]:
    """Give the environment of commands on an engine that may be emptied, and a work folder.

    It is a dockerd with its own data, socket and bridge; four firewall rules let its containers
    out, and those of one network reach each other. All of it is removed at the end. It needs root.
    ``containerd`` is the kind of its store.
    """
    if os.geteuid() or not shutil.which("dockerd") or not shutil.which("iptables"):
        raise SystemExit("this benchmark starts an engine: it needs root, dockerd and iptables")
    # A kill ends a benchmark as an interrupt does: nothing of it stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="imgbuild-bench-") as name:
        folder = Path(name)
        host = f"unix:///run/imgbuild-bench-{os.getpid()}.sock"
        features = {"containerd-snapshotter": containerd}
        daemon = {
            "builder": {"gc": {"enabled": False}},
            "features": features,
            "default-address-pools": [{"base": POOL, "size": 24}],
        }
        (folder / "daemon.json").write_text(json.dumps(daemon), encoding="utf-8")
        (folder / "settings.yaml").write_text(_settings(host), encoding="utf-8")
        command = [
            *("dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/run"),
            *(f"--host={host}", f"--pidfile={folder}/pid", f"--bridge={BRIDGE}"),
            *(f"--config-file={folder}/daemon.json", "--iptables=false", "--ip6tables=false"),
            *("--containerd-namespace=bench", "--containerd-plugins-namespace=bench-plugins"),
        ]
        env = {
            **os.environ,
            "DOCKER_HOST": host,
            "IMGBUILD_SETTINGS": str(folder / "settings.yaml"),
            "XDG_STATE_HOME": str(folder / "state"),
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "",  # as users have it: no module is compiled again
        }
        process = None
        try:
            for words in _network("-I"):
                run(words)
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            _wait(env)
            yield env, folder
        finally:
            if process:
                process.terminate()
                process.wait(60)
            for words in _network("-D"):
                subprocess.run(words, capture_output=True, check=False)


def _settings(host: str) -> str:
    """Return this machine's settings with another engine."""
    own = ROOT / "imgbuild.local.yaml"
    settings = (yaml.safe_load(own.read_text("utf-8")) if own.is_file() else None) or {}
    return str(yaml.safe_dump({**settings, "engine": {"host": host}}))


def _wait(env: Mapping[str, str]) -> None:
    for _ in range(120):
        with suppress(RuntimeError):
            run([DOCKER, "version"], env)
            return
        time.sleep(0.5)
    raise SystemExit("the engine does not start")


def _network(flag: str) -> list[list[str]]:
    """Return the commands that make the bridge and its rules (``-I``) or remove them (``-D``)."""
    # A bridge without an address takes that of a port, and changes it when a container
    # comes or goes: the others lose their way out until they ask for the address again.
    link = ["ip", "link", "add", BRIDGE, "address", ADDRESS, "type", "bridge"]
    address = ["ip", "address", "add", f"{NETWORK}.1/24", "dev", BRIDGE]
    rules = [
        f"iptables -t nat {flag} POSTROUTING -s {NETWORK}.0/24 ! -o {BRIDGE} -j MASQUERADE".split(),
        ["iptables", flag, "FORWARD", "-i", BRIDGE, "-j", "ACCEPT"],
        ["iptables", flag, "FORWARD", "-o", BRIDGE, "-j", "ACCEPT"],
        # Suites make networks; the engine of the machine drops what its rules do not know.
        ["iptables", flag, "FORWARD", "-s", POOL, "-d", POOL, "-j", "ACCEPT"],
    ]
    if flag == "-D":
        return [*rules, ["ip", "link", "delete", BRIDGE]]
    return [link, address, ["ip", "link", "set", BRIDGE, "up"], *rules]
