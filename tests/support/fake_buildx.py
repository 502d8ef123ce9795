"""A `docker-buildx` that replays a recorded build, as a program of the test's own folder."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

from imgbuild.engine.discovery import Buildx

SAMPLES = Path(__file__).parents[1] / "unit" / "engine" / "samples"
IMAGE = "sha256:" + "a" * 64

_HEAD = f"""#!{sys.executable}
import json, os, subprocess, sys, time
if sys.argv[1] == "version":
    print("github.com/docker/buildx v0.99.0 abc")
    sys.exit()
options = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
"""
_REPLAY = """
definition = json.load(open(options["--file"]))
with open({seen!r}, "w") as file:
    json.dump({{"argv": sys.argv[1:], "env": dict(os.environ), "bake": definition}}, file)
sys.stderr.write(open({samples!r} + "." + options["--progress"]).read())
if {metadata!r} is not None and {code} == 0:
    with open(options["--metadata-file"], "w") as file:
        json.dump({metadata!r}, file)
sys.exit({code})
"""
_HANG = """
child = subprocess.Popen(["sleep", "300"])
with open({pids!r}, "w") as file:
    file.write(f"{{os.getpid()}} {{child.pid}}")
print({words!r}, file=sys.stderr, flush=True)
time.sleep(300)
"""
#: What buildx writes when a step begins.
SLEEPING = json.dumps(
    {"vertexes": [{"digest": "x", "name": "[1/2] RUN sleep", "started": "2026-01-01T00:00:00Z"}]}
)


def _program(folder: Path, body: str) -> Buildx:
    path = folder / "docker-buildx"
    path.write_text(_HEAD + body, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Buildx(path, "0.99.0")


def metadata(*targets: str) -> dict[str, dict[str, str]]:
    """Return what buildx writes about built targets, by their bake names."""
    return {target: {"containerimage.digest": IMAGE} for target in targets}


def replaying(
    folder: Path, sample: Path, code: int = 0, built: dict[str, dict[str, str]] | None = None
) -> Buildx:
    """Return a buildx that writes ``sample`` with the suffix of the progress mode, and ends."""
    seen = str(folder / "seen.json")
    body = _REPLAY.format(seen=seen, samples=str(sample), metadata=built, code=code)
    return _program(folder, body)


def hanging(folder: Path, *, words: str = SLEEPING) -> Buildx:
    """Return a buildx that runs until it is stopped."""
    body = _HANG.format(pids=str(folder / "pids"), words=words)
    return _program(folder, body)


def seen(folder: Path) -> dict[str, Any]:
    """Return the arguments, environment and definition of the last bake."""
    found: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return found
