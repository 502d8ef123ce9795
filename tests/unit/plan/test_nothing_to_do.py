"""``imgbuild build --all`` with nothing to do: one question, and nothing heavy loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from checkout_copy import SETTINGS, Checkout
from fake_engine import FakeEngine
from project_copy import copied
from socket_server import SocketServer, socket_server

from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.inputs import build_inputs as inputs
from imgbuild.project import Project
from imgbuild.suites.results import ReportStore

#: What only a build, a test or a download needs, by the names of its top packages.
HEAVY = ("docker", "requests", "urllib3", "rich", "pytest", "testinfra")
CODE = """
import atexit, sys
from imgbuild.cli import main
heavy = sys.argv.pop(1).split()
atexit.register(lambda: print("loaded:", *sorted({*sys.modules} & {*heavy}), file=sys.stderr))
main()
"""


@pytest.fixture(scope="module")
def checkout(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return a checkout whose images are all built, tested and named."""
    folder = tmp_path_factory.mktemp("idle")
    root = copied(project, folder / "checkout")
    root.settings.write_text(json.dumps(SETTINGS), encoding="utf-8")
    store = ReportStore(folder / "state" / "imgbuild" / "reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "uv_context", lambda _: Path("/uv"))
        made = Checkout(root, FakeEngine(), folder / "cache" / "imgbuild", store)
        made.build()
        return made


@pytest.fixture
def server(checkout: Checkout, tmp_path: Path) -> Iterator[SocketServer]:
    """Return the engine's socket: it has the images, and answers nothing else."""
    listed = [
        {"Id": one.id, "RepoTags": one.tags, "Labels": one.labels, "Created": one.created}
        for one in checkout.engine.stored.values()
    ]
    with socket_server(tmp_path / "engine.sock") as started:
        started.answers = {"/images/json": listed}
        yield started


def _imgbuild(
    checkout: Checkout, server: SocketServer, *arguments: str, cache: Path | None = None
) -> subprocess.CompletedProcess[str]:
    folder = checkout.project.root.parent
    client = folder / "docker"  # looked for, never started
    client.touch(0o755)
    environment = {
        "PATH": f"{folder}:{os.defpath}",
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DOCKER_HOST": server.host,
        "XDG_CACHE_HOME": str(cache or folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    return subprocess.run(
        [sys.executable, "-c", CODE, " ".join(HEAVY), *arguments],
        cwd=checkout.project.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


NAMELESS, PULLED = f"sha256:{'e' * 64}", f"sha256:{'f' * 64}"


def _nameless(checkout: Checkout, image_id: str, *tags: str, **labels: str) -> dict[str, object]:
    """Return the engine's entry of an image like the first, without a name of imgbuild's."""
    first = next(iter(checkout.engine.stored.values()))
    return {
        "Id": image_id,
        "RepoTags": tags,
        "Labels": {**first.labels, **labels},
        "Created": first.created,
    }


def test_a_nameless_image_that_may_be_the_one_is_asked_for_its_history_alone(
    checkout: Checkout, server: SocketServer
) -> None:
    """Nothing heavy is loaded for it either."""
    listed = server.answers["/images/json"]
    assert isinstance(listed, list)
    first = next(iter(checkout.engine.stored.values()))
    server.answers = {
        "/images/json": [*listed[1:], _nameless(checkout, NAMELESS)],
        f"/images/{quote(NAMELESS)}/history": [{"CreatedBy": "CMD x", "Size": 0}],
    }
    result = _imgbuild(checkout, server, "build", "--all", "--plan", "--json")
    assert (result.returncode, result.stderr) == (0, "loaded:\n")
    assert len(server.asked) == 2
    busy = {one["image"]: one["action"] for one in json.loads(result.stdout)}
    assert {name for name, action in busy.items() if action != "nothing"} == {
        first.labels["imgbuild.name"]
    }
    assert busy[first.labels["imgbuild.name"]] == "test"


@pytest.mark.parametrize("command", [("build",), ("build", "--json")])
def test_one_question_tells_that_there_is_nothing_to_do(
    checkout: Checkout, server: SocketServer, command: tuple[str, ...]
) -> None:
    """Nor does one that failed its suites or was pulled from a registry cost a question."""
    listed = server.answers["/images/json"]
    assert isinstance(listed, list)
    listed.append(_nameless(checkout, NAMELESS, **{INPUT_DIGEST: "sha256:other"}))
    listed.append(_nameless(checkout, PULLED, "registry.example.org/tf:1"))
    result = _imgbuild(checkout, server, *command, "--all")
    assert (result.returncode, result.stderr) == (0, "loaded:\n")
    assert [path for path, _ in server.asked] == ["/images/json"]
    if "--json" in command:
        states = [one["state"] for one in json.loads(result.stdout)]
        assert states == ["up to date"] * len(checkout.images)
    else:
        assert f"Nothing to do: {len(checkout.images)} images are up to date" in result.stdout


def test_nothing_is_made_for_an_engine_that_is_not_there(
    checkout: Checkout, server: SocketServer, tmp_path: Path
) -> None:
    server.path, cache = tmp_path / "nothere", tmp_path / "cache"
    result = _imgbuild(checkout, server, "build", "--all", cache=cache)
    assert result.returncode == 3
    said = result.stderr.partition("loaded:")[0]
    assert said.startswith(f"imgbuild: The engine at unix://{tmp_path}/nothere cannot be used: ")
    assert "No such file or directory. Start it" in said
    assert not cache.exists()
