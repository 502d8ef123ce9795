"""``imgbuild build --all`` with nothing to do: one question, and nothing heavy loaded."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.inputs import build_inputs as inputs
from support.checkout_copy import SETTINGS, Checkout, built_checkout
from support.project_copy import imgbuild
from support.socket_server import SocketServer, socket_server

#: What only a build, a test or a download needs, by the names of its top packages.
HEAVY = ("docker", "requests", "urllib3", "rich", "pytest", "testinfra")
LOADED = f"""
import atexit, sys
atexit.register(lambda: print("loaded:", *sorted({{*sys.modules}} & {{*{HEAVY}}}), file=sys.stderr))
"""


@pytest.fixture(scope="module")
def checkout(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "prepare_uv", lambda _: Path("/uv"))
        made = built_checkout(project, tmp_path_factory.mktemp("idle"))
    made.project.settings_file.write_text(json.dumps(SETTINGS), encoding="utf-8")
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


def _build(
    checkout: Checkout, server: SocketServer, *options: str
) -> subprocess.CompletedProcess[str]:
    folder = checkout.project.root.parent
    environment = {
        "HOME": str(folder),
        "DOCKER_HOST": server.host,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    words = ("build", "--all", *options)
    return imgbuild(checkout.project.root, *words, env=environment, before=LOADED)


NAMELESS, PULLED = f"sha256:{'e' * 64}", f"sha256:{'f' * 64}"


def _nameless(checkout: Checkout, image_id: str, *tags: str, **labels: str) -> dict[str, object]:
    """Return the engine's entry of an image like the first, without a name of imgbuild's."""
    first = next(iter(checkout.engine.stored.values()))
    own = {**first.labels, **labels}
    return {"Id": image_id, "RepoTags": tags, "Labels": own, "Created": first.created}


@pytest.mark.parametrize(("built", "action"), [(True, "test"), (False, "build")])
def test_a_nameless_image_counts_by_its_record(
    checkout: Checkout, server: SocketServer, built: bool, action: str
) -> None:
    """The engine is asked for nothing more, and nothing heavy is loaded."""
    listed = server.answers["/images/json"]
    assert isinstance(listed, list)
    image_id = NAMELESS if built else PULLED
    if built:
        checkout.store.import_results(image_id, {}, built=True)
    server.answers = {"/images/json": [*listed[1:], _nameless(checkout, image_id)]}
    result = _build(checkout, server, "--dry-run", "--json")
    assert (result.returncode, result.stderr) == (0, "loaded:\n")
    assert len(server.asked) == 1
    actions = {one["image"]: one["action"] for one in json.loads(result.stdout)}
    first = next(iter(checkout.engine.stored.values())).labels["imgbuild.name"]
    assert {name: one for name, one in actions.items() if one != "nothing"} == {first: action}


def test_one_question_tells_that_there_is_nothing_to_do(
    checkout: Checkout, server: SocketServer
) -> None:
    """Nor does one that failed its suites or was pulled from a registry cost a question."""
    listed = server.answers["/images/json"]
    assert isinstance(listed, list)
    listed.append(_nameless(checkout, NAMELESS, **{INPUT_DIGEST: "sha256:other"}))
    listed.append(_nameless(checkout, PULLED, "registry.example.org/tf:1"))
    result = _build(checkout, server)
    assert (result.returncode, result.stderr) == (0, "loaded:\n")
    assert [path for path, _ in server.asked] == ["/images/json"]
    assert f"Nothing to do: {len(checkout.images)} images are up to date" in result.stdout
