"""Every kind of file in the cache and the state is damaged, in two ways; then a build."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imgbuild.inputs.oci_layout import is_whole
from standin.server import serve
from support.copied_checkout import CONTENT, CPYTHON, TEMPLATE, change_settings, take_base
from support.own_dockerd import OwnDockerd
from support.small_project import FINAL, ONE, SmallProject, small_project

pytestmark = pytest.mark.nightly

_USE = f"""\
FROM os AS checked
ARG SHA256_CPYTHON
RUN --network=none --mount=type=bind,from=downloads,source={CPYTHON},target=/run/source \\
    echo "$SHA256_CPYTHON  /run/source" | sha256sum --check > /checked
"""


def _files(project: SmallProject) -> list[Path]:
    """Return one file of every kind that a build left: the largest of each folder."""
    assert project.cache
    folders = [*(project.cache / "imgbuild").iterdir(), project.state / "imgbuild" / "reports"]
    own = [[one for one in folder.rglob("*") if not one.is_symlink()] for folder in folders]
    kinds = [[path for path in kind if path.is_file() and path.stat().st_size] for kind in own]
    return [max(kind, key=lambda path: path.stat().st_size) for kind in kinds if kind]


@pytest.fixture(scope="module")
def project(
    dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallProject]:
    """Give a small project with a cache of its own, whose images check the source of CPython."""
    folder = tmp_path_factory.mktemp("corrupted")
    served = folder / "www" / "python" / "3.6.15"
    served.mkdir(parents=True)
    (served / CPYTHON).write_bytes(CONTENT)
    with serve(folder) as server:
        made = small_project(folder, dockerd.host, folder / "cache")
        change_settings(made.root, mirrors={"python-org": f"{server.url}/"})
        # The named context takes the place of the empty stage.
        made.edit(TEMPLATE, "FROM base AS os\n", "FROM scratch AS downloads\nFROM base AS os\n")
        made.edit(TEMPLATE, FINAL, f"{_USE}{FINAL}COPY --from=checked /checked /checked\n")
        take_base(made.root, folder / "cache")
        shutil.rmtree(folder / "cache" / "imgbuild" / "downloads")
        made.run(*ONE)
        yield made


def _truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _garble(content: bytes) -> bytes:
    """Change one byte, but not the size."""
    half = len(content) // 2
    return content[:half] + bytes([content[half] ^ 0x55]) + content[half + 1 :]


def _damage(path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Put other content in the place of a file of the same time; its hard links keep theirs."""
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(damage(path.read_bytes()))
    shutil.copystat(path, other)
    other.replace(path)


def _forget(project: SmallProject) -> None:
    """Let the engine have nothing, so that all of the cache is used again."""
    while images := project.images():
        project.docker("rmi", "--force", *images)
    project.run("clean", "--only", "build-cache", "--yes")


@pytest.mark.parametrize(
    ("damage", "spared"),
    [(_truncate, {"base"}), (_garble, set[str]())],  # the base takes half a minute: once is enough
)
def test_every_kind_of_file_is_damaged_and_made_right(
    project: SmallProject, damage: Callable[[bytes], bytes], spared: set[str]
) -> None:
    found = {path.relative_to(project.state.parent).parts[2]: path for path in _files(project)}
    assert {*found} >= {"base", "contexts", "downloads", "uv", "reports"}
    before = {path: path.read_bytes() for kind, path in found.items() if kind not in spared}
    _forget(project)
    for path in before:
        _damage(path, damage)
    said = ""
    if "base" not in spared:
        said = project.run(*ONE, code=3).stderr
        assert "imgbuild doctor --write" in said
        made = project.run("matrix", "--tf", "1.10", "--make-bases")
        assert "the base image in the cache is damaged" in made.stderr
    last = project.run(*ONE).stderr
    assert "base image in the cache is damaged" not in last
    said += last
    assert f"{CPYTHON} in the cache is damaged" in said
    assert project.check_names() == 2
    assert project.left() == []
    assert is_whole(found["base"].parents[2])
    for path, content in before.items():
        # The image of the report is another now, and the archive may have newer packages.
        if not {"reports", "base"} & {*path.parts}:
            assert path.read_bytes() == content, path


def test_a_damaged_verdict_is_none(project: SmallProject) -> None:
    """The suites run again, for an image that is there and has its names."""
    (image,) = {*project.ids().values()}
    reports = project.state / "imgbuild" / "reports"
    _damage(reports / f"{image.removeprefix('sha256:')}.json", _truncate)
    assert "testing" in project.run(*ONE).stderr
    assert project.check_names() == 2
