"""``imgbuild sbom`` on an engine in memory: which image it is of, where it goes."""

from pathlib import Path

import pytest
import typer
from fake_engine import FakeEngine
from typer.testing import CliRunner, Result

from imgbuild.build.context import image_locks
from imgbuild.cli import register
from imgbuild.engine.types import StoredImage
from imgbuild.errors import ImgbuildError, InputError, MachineError
from imgbuild.project import Project, state_dir

TAG, OTHER = "imgbuild/tensorflow:2.2-cpu", "ml/churn:1"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    made = FakeEngine([StoredImage("sha256:a", (TAG,)), StoredImage("sha256:b", (OTHER,))])
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _host: made)

    def sbom(name: str, stored: StoredImage, *_: object) -> str:
        return f'{{"name": "{name}", "id": "{stored.id}"}}\n'

    monkeypatch.setattr("imgbuild.trust.sbom.image_sbom", sbom)
    return made


def _run(project: Project, *words: str) -> Result:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["sbom", "--project", str(project.root), *words])
    if isinstance(result.exception, ImgbuildError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.usefixtures("engine")
def test_one_image_by_its_name_its_tag_or_any_reference(project: Project, tmp_path: Path) -> None:
    own = '{"name": "tf-2.2-cpu-debian", "id": "sha256:a"}\n'
    for name in ("tf-2.2-cpu-debian", "2.2-cpu"):
        assert _run(project, "--name", name).stdout == own
    file = tmp_path / "sbom.json"
    assert _run(project, "--image", OTHER, "--output", str(file)).stdout == ""
    assert file.read_text() == '{"name": "ml/churn:1", "id": "sha256:b"}\n'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--image", "ml/none:1"), "has no image ml/none:1"),
        (("--tf", "2.3"), "Build it first: imgbuild build --name tf-2.3-cpu-debian"),
        (("--tf", "2.2", "--tf", "2.3"), "An SBOM is of one image; 2 are selected"),
        (("--tf", "2.2", "--image", OTHER), "--image cannot be combined"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_what_is_no_one_image_writes_nothing(
    project: Project, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "sbom.json"
    with pytest.raises(InputError, match=said):
        _run(project, *words, "--output", str(file))
    assert not file.exists()


def test_an_image_that_another_imgbuild_works_on(project: Project, engine: FakeEngine) -> None:
    locks = image_locks(["tf-2.2-cpu-debian"], engine.host, state_dir() / "locks")
    with locks, pytest.raises(MachineError, match="is being built, tested or pushed by another"):
        _run(project, "--tf", "2.2")
