"""The updates that an image lacks: of the image only a file is used, and never a program."""

from pathlib import Path

import pytest

from imgbuild.build import prepare
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.types import StoredImage
from imgbuild.scan import updates
from imgbuild.scan.updates import STATUS, find_updates, make_status, read_status, read_updates
from support.bench import Bench

BASE = f"docker-image://debian@sha256:{'a' * 64}"


@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_updates_are_asked_for_in_a_base_image(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    """The step with secrets and network begins with it; the image is not in the build at all."""
    seen: list[BuildTarget] = []

    def export(target: BuildTarget, folder: Path, _: object) -> None:
        seen.append(target)
        stages = Dockerfile(target.dockerfile.read_text(encoding="utf-8")).stages
        assert {stage.parent for stage in stages.values() if "RUN " in stage.text} == {"archive"}
        known = Path(target.contexts["known"])
        assert [path.name for path in known.iterdir()] == ["status"]
        assert known.joinpath("status").read_bytes() == make_status({"git": "1"})
        folder.mkdir()
        (folder / "packages").write_text("ii  git 1\n", encoding="utf-8")
        (folder / "uris").write_text(
            "'http://d/debian-security/pool/g/git_2_amd64.deb' git_2_amd64.deb 1 SHA256:0\n",
            encoding="utf-8",
        )

    monkeypatch.setattr(updates, "export_stage", export)
    asked: list[str] = []
    monkeypatch.setattr(prepare, "provide_base", lambda image, *_: asked.append(image.platform))
    status = make_status({"git": "1"})
    (found,) = find_updates("own:1", "debian-12", status, bench.context, platform)
    assert (found.package, found.installed, found.available, found.security) == (
        "git",
        "1",
        "2",
        True,
    )
    (target,) = seen
    assert (target.platform, asked) == (platform, [platform])
    assert {**target.contexts, "known": ""} == {"archive": BASE, "known": ""}


@pytest.mark.parametrize("system", ["alpine-3.19", "debian-11", "-", ""])
def test_a_system_that_the_matrix_lacks_is_refused(bench: Bench, system: str) -> None:
    with pytest.raises(InputError, match="own:1") as refused:
        find_updates("own:1", system, b"", bench.context)
    assert "debian-12" in str(refused.value)
    with pytest.raises(InputError, match="for linux/riscv64"):
        find_updates("own:1", "debian-12", b"", bench.context, "linux/riscv64")


def test_the_status_is_a_file_of_the_image(bench: Bench) -> None:
    stored = StoredImage("sha256:own", ("own:1",))
    bench.engine.stored[stored.id] = stored
    with pytest.raises(CheckFailedError, match=STATUS):
        read_status("own:1", stored, bench.engine)
    bench.engine.files[stored.id, STATUS] = b"Package: git"
    assert read_status("own:1", stored, bench.engine) == b"Package: git"
    assert "start" not in bench.engine.calls


@pytest.mark.parametrize("line", ["ii \x1b[2J 1", "ii ../git 1", "ii git 1;id"])
def test_a_package_of_another_form_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "packages").write_text(f"{line}\n", encoding="utf-8")
    (tmp_path / "uris").touch()
    with pytest.raises(CheckFailedError, match="is not a valid name and version"):
        [*read_updates(tmp_path)]
