"""``imgbuild sbom`` on an engine in memory; what it writes is tried in tests/e2e/test_sbom.py."""

from pathlib import Path

import pytest

from imgbuild.build.context import image_locks
from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.user_folders import state_dir
from imgbuild.engine.types import StoredImage
from support.fake_engine import FakeEngine
from support.project_copy import command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ml/none:1",), "has an image 'ml/none:1'"),
        (("--tf", "2.3"), "Build it first: imgbuild build tf-2.3-cpu-debian"),
        (("--tf", "2.2", "--tf", "2.3"), "one image, but 2 are selected"),
        (("--tf", "2.2", "ml/churn:1"), "cannot be combined with --tf"),
        (("--tf", "2.2"), "is being built, tested or pushed by another"),
    ],
    ids=["no image", "not built", "two", "combined", "busy"],
)
def test_what_is_no_one_image_writes_nothing(
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    usual = StoredImage("sha256:a", ("imgbuild/tensorflow:2.2-cpu",))
    engine = FakeEngine([usual])
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _host: engine)
    own, file = ("sbom", "--project", str(project.root)), tmp_path / "sbom.json"
    busy = image_locks(["tf-2.2-cpu-debian"], engine.host, state_dir() / "locks")
    with busy, pytest.raises(MachineError if "another" in said else InputError, match=said):
        command(*own, *words, "--output", str(file))
    assert not file.exists()
