"""Which image `imgbuild run --exec` starts: an own or a trusted one, by the id that was checked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.errors import CheckFailedError
from imgbuild.engine.types import StoredImage
from imgbuild.net.signing import Trust
from imgbuild.suites.store import ReportStore
from imgbuild.training.training_job import TrainingJob
from support.fake_engine import FakeEngine
from support.run_words import IMAGE, PROGRAM, ran

ID, DIGEST = f"sha256:{'1' * 64}", f"registry.example.org/ml/tf@sha256:{'2' * 64}"
Start = Callable[..., tuple[int, str]]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    stored = StoredImage(ID, (IMAGE, "me/own:1"), {"imgbuild.name": "tf-2.2-cpu-debian"})
    made = FakeEngine([stored])
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _: made)
    monkeypatch.setattr("imgbuild.core.process.find_program", lambda *_: "/bin/docker")
    return made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the images that are started."""
    images: list[str] = []

    def run_job(job: TrainingJob, *_: object) -> int:
        assert job.only_local, "an id is never pulled"
        images.append(job.image)
        return 0

    monkeypatch.setattr("imgbuild.training.docker_run.run_job", run_job)
    return images


@pytest.fixture
def start(engine: FakeEngine, tmp_path: Path) -> Start:
    """Return how to run the command with its own state folder; ``verify`` is in its settings."""

    def run(*words: str, verify: bool = False) -> tuple[int, str]:
        assert engine
        settings = tmp_path / "settings.yaml"
        settings.write_text("verify: {key: /etc/cosign.pub}\n" if verify else "{}\n")
        found = {"IMGBUILD_SETTINGS": str(settings), "XDG_STATE_HOME": str(tmp_path)}
        return ran(tmp_path, *words, "--exec", *PROGRAM, env=found)

    return run


def store(tmp_path: Path) -> ReportStore:
    return ReportStore(tmp_path / "imgbuild" / "reports")


def test_exec_starts_an_own_image_by_its_id(
    start: Start, started: list[str], tmp_path: Path
) -> None:
    store(tmp_path).import_results(ID, {}, built=True)
    assert start("--tf", "2.2") == (0, "")
    assert started == [ID]


def test_exec_refuses_an_image_without_a_record(
    start: Start, started: list[str], tmp_path: Path
) -> None:
    """Its name and labels are right; a test of it makes it no own one."""
    store(tmp_path).save(ID, {}, ())
    code, text = start("--tf", "2.2")
    assert (code, started) == (2, [])
    assert "imgbuild build tf-2.2-cpu-debian" in text


@pytest.mark.parametrize("image", [ID, "me/own:1"])
@pytest.mark.parametrize("digests", [(), (DIGEST,)])
def test_exec_needs_a_signature_by_any_name(  # noqa: PLR0913, PLR0917 - a case
    engine: FakeEngine,
    start: Start,
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    image: str,
    digests: tuple[str, ...],
) -> None:
    engine.stored[ID] = StoredImage(ID, ("me/own:1",), digests=digests)
    trusted: list[str] = []

    def require(_: Trust, reference: str) -> None:
        if reference not in trusted:
            raise CheckFailedError(f"{reference}: it has no signature.")

    monkeypatch.setattr(Trust, "require_signature", require)
    code, text = start(image, verify=True)
    assert (code, started) == (1, [])
    assert "has no signature that `verify`" in text
    trusted += digests
    code, _ = start(image, verify=True)
    assert (code, started) == ((0, [ID]) if digests else (1, []))


def test_exec_trusts_what_was_made_here(start: Start, started: list[str], tmp_path: Path) -> None:
    store(tmp_path).record_extension(ID)
    assert start("me/own:1", verify=True)[0] == 0
    assert started == [ID]
