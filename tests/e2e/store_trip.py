"""One image from its engine, through a registry, to an engine with the other image store."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkout import Checkout
from network_namespace import forwarded
from own_registry import own_registry

from imgbuild.engine.client import Engine

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
    """Push the image ``name`` of ``checkout``, and pull it with the engine at ``target``.

    Its record and its tags are in the registry then, and the pulled image has the same inputs.
    """
    with own_registry(folder) as registry, forwarded(registry.port, other.pid):
        repository = f"{registry.host}/{REPOSITORY}"
        allowed = ("--allow-substituted", "--allow-cached")  # an earlier run may have built it
        push = ("push", "--name", name, "--to", repository, *allowed)
        plan = checkout.run(*push, "--plan", "--json")
        (image,) = json.loads(plan.stdout)["images"]
        for _ in range(2):
            checkout.run(*push)
        listed = checkout.run("published", "--from", repository, "--check")
        assert name in listed.stdout
        _pull_and_run(checkout, name, target, f"{repository}:{image['tag']}")


def _pull_and_run(checkout: Checkout, name: str, target: str, reference: str) -> None:
    plan = checkout.run("build", "--name", name, "--plan", "--json")

    def docker(*arguments: str) -> str:
        result = subprocess.run(
            ["docker", "--host", target, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    docker("pull", "--quiet", reference)
    try:
        engine = Engine(target)
        stored = engine.inspect(reference)
        engine.close()
        assert stored is not None
        digest = json.loads(plan.stdout)[0]["input_digest"]
        assert stored.labels["imgbuild.input-digest"] == digest
        program = "import tensorflow; print(tensorflow.__version__)"
        printed = docker("run", "--rm", "--network=none", reference, "python", "-c", program)
        assert printed.strip().startswith(name.split("-")[1])
    finally:
        docker("rmi", reference)
