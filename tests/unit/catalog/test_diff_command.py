"""``imgbuild diff``: images of the matrix, releases, and references, side by side."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.catalog import comparison, entries
from imgbuild.core.errors import InputError, MachineError
from imgbuild.engine.types import Layer, StoredImage
from imgbuild.suites.catalog import Suite
from imgbuild.suites.container import ImageContents
from imgbuild.suites.results import Check, suite_result
from imgbuild.suites.store import ReportStore
from support.fake_engine import FakeEngine
from support.project_copy import NO_ENGINE, ROOT, command
from support.published_images import RECORD, publish
from support.registry_server import RegistryServer, registry_server

NAME = "tf-2.2-cpu-debian"
FIRST, SECOND = "20261101.1", "20261120.1"
LABELS = {"imgbuild.pin.tensorflow": "2.2.0", "imgbuild.mpi-flavour": "openmpi"}
CONTENTS = ImageContents(
    (("tensorflow", "2.2.0"),),
    built_with_cuda=False,
    kernels=False,
    python="3.8.18",
    mpirun="mpirun (Open MPI) 4.1.4",
    cuda=(),
    os=("debian", "12"),
    packages={"numpy": "1.18.5", "pandas": "1.1.5"},
)


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "imgbuild.local.yaml"
    settings.write_text("publishing: {attempts: 1, first_wait: 0}\n", encoding="utf-8")
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(settings))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(*words: str) -> str:
    return command("diff", *words, "--project", str(ROOT), env=NO_ENGINE).stdout


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        for release, packages in ((FIRST, {"numpy": "1.18.4"}), (SECOND, {"numpy": "1.18.5"})):
            tag = RECORD.tag.replace(SECOND, release)
            when = f"{release[:4]}-{release[4:6]}-{release[6:8]}T00:00:00Z"
            changes: dict[str, Any] = {"packages": packages, "published": when}
            publish(started.store, tag, release=release, moving=(), **changes)
        yield started


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Give an engine with an image of this family, and one of others."""
    ours = StoredImage("sha256:1", ("me/train:1",), LABELS, 2_000_000)
    fake = FakeEngine([ours, StoredImage("sha256:2", ("other/tf:1",), {}, 3_000_000)])
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _: fake)
    monkeypatch.setattr(comparison, "read_contents", lambda *_: CONTENTS)
    return fake


def test_images_of_the_matrix() -> None:
    text = run("2.1-gpu", "AzureML-TensorFlow-2.2-GPU")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert {"pins tf-2.1-gpu-ubuntu tf-2.2-gpu-ubuntu", "keras-applications 1.0.8 -"} <= {*rows}
    for begin in ("the same pins: python 3.6.2, ", "the same gpus: oldest driver 418.39, "):
        assert [row for row in rows if row.startswith(begin)]
    text = run("tf-2.0-gpu-ubuntu", "tf-2.1-gpu-ubuntu")
    assert re.search(r"\ncuda +10\.0 +10\.1\n", text)


def test_json_has_all_of_both_and_what_differs() -> None:
    found = json.loads(run("2.2-cpu", "2.2-gpu", "--json"))
    assert (found["a"]["title"], found["b"]["pins"]["cuda"]) == (NAME, "10.1")
    assert found["differing"]["pins"]["cuda"] == [None, "10.1"]
    assert "horovod" not in found["differing"]["pins"]
    assert {*found["a"]["size"]} == {"budget"}
    assert found["differing"]["suites"] == {}, "nothing is compared that is not known"


def test_what_is_built_here(monkeypatch: pytest.MonkeyPatch) -> None:
    suites = {Suite("pins", "", None, ""): suite_result("pins", passed=1)}
    layer = Layer(None, 5_000_000, "RUN")

    def add(asked: list[entries.CatalogEntry], *_: object) -> list[entries.CatalogEntry]:
        if asked[0].image.name != NAME:
            return asked
        return [replace(asked[0], absence="", suites=suites, layers=(layer,))]

    monkeypatch.setattr(comparison, "add_built", add)
    text = run("2.2", "2.3")
    assert "unpacked  5.0 MB             -\n" in text
    assert "suites: not compared. tf-2.3-cpu-debian is not built on this machine.\n" in text


def test_releases(server: RegistryServer) -> None:
    text = run(f"2.2@{FIRST}", "2.2@published", "--from", server.name)
    assert "numpy     1.18.4                        1.18.5\n" in text
    assert "  the same pins: horovod 0.19.5, tensorflow 2.2.0, mpi flavour openmpi\n" in text
    assert "  the same suites: gpu_runs skipped, pins passed\n" in text
    publish(server.store, "2.2.0-old-20261121.1", release="20261121.1", moving=())
    text = run(f"2.2@{SECOND}", "2.2@20261121.1", "--from", server.name)
    assert "packages: not compared. tf-2.2-cpu-debian@20261121.1 " in text, "an older record"
    with pytest.raises(InputError, match=r"20260101\.1"):
        run("2.2@20260101.1", "2.2", "--from", server.name)
    with pytest.raises(InputError, match="--from"):
        run("2.2@published", "2.2")


@pytest.mark.usefixtures("engine")
def test_references_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ReportStore(tmp_path / "state" / "imgbuild" / "reports")
    failed = suite_result("pins", passed=1, failures=[Check(test="test_x", message="no")])
    store.save("sha256:1", {"pins": "key"}, [failed])
    found = json.loads(run("me/train:1", "other/tf:1", "--json"))
    assert found["a"]["pins"] == {"tensorflow": "2.2.0", "mpi flavour": "openmpi"}
    assert found["b"]["pins"]["mpi"] == "4.1.4"
    assert found["a"]["packages"] == {"numpy": "1.18.5", "pandas": "1.1.5"}
    assert found["differing"]["size"] == {"unpacked": [2_000_000, 3_000_000]}
    assert found["differing"]["suites"] == {"pins": ["failed", None]}
    assert [*(tmp_path / "state" / "imgbuild" / "locks").iterdir()]
    with pytest.raises(InputError, match="beside/it:1"):
        run("beside/it:1", "2.2")

    def busy(*_: object) -> ImageContents:
        raise MachineError("me-train-1 is being tested")

    monkeypatch.setattr(comparison, "read_contents", busy)
    with pytest.raises(MachineError, match="me-train-1 is being tested"):
        run("me/train:1", "2.2")


def test_a_reference_of_a_registry(server: RegistryServer) -> None:
    """No engine answers; the image with a record is known by it, the other one by its labels."""
    plain = server.store.add_image("plain", config={"Labels": LABELS})
    recorded = f"{server.name}:{RECORD.tag}"
    found = json.loads(run(recorded, f"{server.name}@{plain.digest}", "--json"))
    assert found["a"]["title"] == f"tf-2.2-cpu-debian@{SECOND}"
    assert found["b"]["pins"] == {"tensorflow": "2.2.0", "mpi flavour": "openmpi"}
    assert found["b"]["suites"] == "has no record"
    with pytest.raises(InputError, match="gone"):
        run(f"{server.name}:gone", "2.2")
    with pytest.raises(MachineError, match="localhost:1/nobody/there"):
        run("localhost:1/nobody/there", "2.2")
