"""One image from its engine, through a registry, to an engine with the other image store."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from imgbuild.engine.client import Engine
from support.checkout import Checkout
from support.network_namespace import forwarded
from support.own_registry import own_registry

SETUP = Path(__file__).resolve().parents[2] / "build" / "setup" / "engine.sh"
REPOSITORY = "ml/tensorflow"


@dataclass(frozen=True)
class OtherEngine:
    """An engine with the image store that the main engine lacks; it has no network."""

    host: str
    containerd_store: bool
    pid: int


@contextmanager
def other_engine(main: Engine) -> Iterator[OtherEngine]:
    """Start one by ``build/setup/engine.sh``; it and its data are gone afterwards."""
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.fail("an engine with the other image store needs root and dockerd", pytrace=False)
    containerd = not main.version().containerd_store
    store = "containerd" if containerd else "graph"

    def setup(*arguments: str) -> str:
        command = [str(SETUP), *arguments, "--store", store]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    setup("stop")  # a test run that was killed may have left one
    host = setup("start")
    try:
        pid = int(Path(f"/run/imgbuild-{store}/docker.pid").read_text(encoding="ascii"))
        yield OtherEngine(host, containerd, pid)
    finally:
        setup("stop")


def push_and_pull(
    checkout: Checkout, name: str, other: OtherEngine, target: str, folder: Path
) -> None:
    """Push the image ``name``, and pull it with the engine at ``target``: its inputs stay."""
    with own_registry(folder) as registry, forwarded(registry.port, other.pid):
        repository = f"{registry.host}/{REPOSITORY}"
        push = ("push", name, "--to", repository, "--allow-substituted")
        (image,) = checkout.json(*push, "--dry-run")["images"]
        checkout.run(*push)
        assert name in checkout.run("release", "list", "--from", repository, "--check").stdout
        _pull_and_run(checkout, name, target, f"{repository}:{image['tag']}")


def _pull_and_run(checkout: Checkout, name: str, target: str, reference: str) -> None:
    (plan,) = checkout.json("build", name, "--dry-run")
    puller = replace(checkout, host=target)
    puller.printed("pull", "--quiet", reference)
    try:
        with closing(Engine(target)) as engine:
            labels = engine.need(reference).labels
        assert labels["imgbuild.input-digest"] == plan["input_digest"]
        program = "import tensorflow; print(tensorflow.__version__)"
        run = ("run", "--rm", "--network=none", reference, "python", "-c", program)
        assert puller.printed(*run).startswith(name.split("-")[1])
    finally:
        puller.docker("rmi", reference)
