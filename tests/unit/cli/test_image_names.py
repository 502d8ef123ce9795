"""IMAGE in every command: the list first, then the engine, then a registry."""

from pathlib import Path

import pytest

from imgbuild.cli.options import engine_images, pull_missing, split_names
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.selection import Selection
from imgbuild.net.signing import Trust
from support.fake_engine import FakeEngine
from support.run_words import PROGRAM, ran

OWN, PUBLISHED = "me/train:1", "registry.example.org/ml/tf:1"
#: Its name is one of the list, too.
STRANGERS = StoredImage("sha256:a", ("imgbuild/tensorflow:2.2-cpu", OWN), {})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    digest = f"registry.example.org/ml/tf@sha256:{'1' * 64}"
    remote = StoredImage("sha256:r", (PUBLISHED,), digests=(digest,))
    engine = FakeEngine([STRANGERS], {PUBLISHED: remote})
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _: engine)
    return engine


def names(project: Project, *words: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    own, others = split_names(project, Selection(names=words))
    return own.names, others


@pytest.mark.usefixtures("engine")
def test_a_name_is_of_the_list_then_the_engine_then_a_registry(project: Project) -> None:
    assert names(project, "2.2", "imgbuild/tensorflow:2.2-cpu", OWN, PUBLISHED, "sha256:a") == (
        ("2.2", "imgbuild/tensorflow:2.2-cpu"),
        (OWN, PUBLISHED, "sha256:a"),
    )
    assert names(project, "AzureML-TensorFlow-2.2-GPU") == (("AzureML-TensorFlow-2.2-GPU",), ())
    with pytest.raises(InputError, match="Neither the matrix nor the engine has"):
        names(project, "me/none:1")
    for unknown in ("2.99", "tf-2.2-cpu-debain", "a b"):
        with pytest.raises(InputError, match="engine has no such image"):
            names(project, unknown)


def test_without_an_engine_only_a_reference_passes(
    project: Project, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise MachineError("There is no engine.")

    monkeypatch.setattr(engine, "inspect", broken)
    assert names(project, OWN) == ((), (OWN,))
    with pytest.raises(InputError, match=r"Most similar: tf-2\.2-cpu-debian"):
        names(project, "tf-2.2-cpu-debain")


@pytest.mark.usefixtures("engine")
def test_images_of_both_kinds_and_options(project: Project) -> None:
    (other, own) = engine_images(project, Selection(names=("2.2", OWN)))
    assert other == (OWN, None)
    assert own[1] is not None
    assert own[1].name == "tf-2.2-cpu-debian"
    with pytest.raises(InputError, match="cannot be combined with --tf"):
        engine_images(project, Selection(names=(OWN,), tensorflow=("2.2",)))


def test_only_a_trusted_image_of_a_registry_is_pulled(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Trust, reference: str) -> None:
        raise CheckFailedError(f"{reference}: it has no signature.")

    monkeypatch.setattr(Trust, "require_signature", refuse)
    key = tmp_path / "cosign.pub"
    key.write_text("a key", encoding="ascii")
    trusting = Settings.model_validate({"verify": {"key": str(key)}})
    with pytest.raises(CheckFailedError, match="has no signature"):
        pull_missing(engine, PUBLISHED, trusting)
    assert [*engine.stored] == ["sha256:a"]
    pull_missing(engine, PUBLISHED, Settings())
    assert engine.inspect(PUBLISHED) is not None
    pull_missing(engine, OWN, trusting)  # it is there
    pull_missing(engine, "me/none:1", trusting)  # Docker Hub's would be a stranger's


@pytest.mark.parametrize(
    ("name", "words", "has_gpu", "launcher"),
    [
        ("tf-2.12-gpu-debian", (), True, "--oversubscribe"),
        ("tf-2.12-gpu-debian", ("--cpu",), False, "--oversubscribe"),
        ("tf-2.2-cpu-debian-intelmpi", (), False, "mpirun -np 2 python"),
        ("tf-2.2-cpu-debian-intelmpi", ("--mpi", "openmpi"), False, "--oversubscribe"),
        ("tf-9.9-gpu-debian", ("--gpu",), True, "--oversubscribe"),
    ],
)
def test_run_knows_from_its_label_what_an_image_has(  # noqa: PLR0913 - a case
    engine: FakeEngine,
    tmp_path: Path,
    name: str,
    words: tuple[str, ...],
    *,
    has_gpu: bool,
    launcher: str,
) -> None:
    engine.stored["sha256:b"] = StoredImage("sha256:b", ("me/own:1",), {"imgbuild.name": name})
    code, text = ran(tmp_path, "me/own:1", *words, "-np", "2", *PROGRAM)
    assert code == 0
    assert ("--gpus all" in text) is has_gpu
    assert launcher in " ".join(text.replace("\\\n", " ").split())
