"""Every kind of file in the cache and the state is damaged, in two ways; then a build."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from copied_checkout import CONTENT, CPYTHON, SHA256, change_settings, take_base
from own_dockerd import OwnDockerd
from small_project import SmallProject, small_project

from standin.server import serve

pytestmark = pytest.mark.nightly

ONE = ("build", "--tf", "1.10")
_USE = f"""\
FROM os AS checked
ARG SHA256_CPYTHON
RUN --network=none --mount=type=bind,from=downloads,source={CPYTHON},target=/run/source \\
    echo "$SHA256_CPYTHON  /run/source" | sha256sum --check > /checked
"""


@dataclass(frozen=True)
class OwnCache(SmallProject):
    """A small project with a cache of its own."""

    @property
    def cache(self) -> Path:
        return self.state.parent / "cache"

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "XDG_CACHE_HOME": str(self.cache)}

    def files(self) -> list[Path]:
        """Return one file of every kind that a build left: the largest of each folder."""
        folders = [*(self.cache / "imgbuild").iterdir(), self.state / "imgbuild" / "reports"]
        kinds = [[path for path in folder.rglob("*") if _counts(path)] for folder in folders]
        return [max(kind, key=lambda path: path.stat().st_size) for kind in kinds if kind]


def _counts(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size > 0


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCache]:
    folder = tmp_path_factory.mktemp("corrupted")
    served = folder / "www" / "python" / "3.6.15"
    served.mkdir(parents=True)
    (served / CPYTHON).write_bytes(CONTENT)
    with serve(folder) as server:
        small = small_project(folder, dockerd.host)
        made = OwnCache(small.root, small.state, small.host)
        _take_source_from(made, f"{server.url}/")
        take_base(made.root, made.cache)
        made.run(*ONE)
        yield made


def _take_source_from(project: OwnCache, url: str) -> None:
    mirrors, substitutes = {"python-org": url}, {CPYTHON: SHA256}
    change_settings(project.root, cpython=None, mirrors=mirrors, substitutes=substitutes)
    template = project.root / "images" / "templates" / "Dockerfile.j2"
    text = template.read_text(encoding="utf-8")
    head, tail = text.split("FROM os AS final\n")
    checked = "FROM os AS final\nCOPY --from=checked /checked /checked\n"
    empty = "FROM scratch AS downloads\n"  # the named context takes its place
    template.write_text(empty + head + _USE + checked + tail, encoding="utf-8")
    project.run("render")


def _truncate(path: Path) -> None:
    content = path.read_bytes()
    _replace(path, content[: len(content) // 2])


def _garble(path: Path) -> None:
    """Change one byte, but neither size nor time."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    _replace(path, bytes(content))


def _replace(path: Path, content: bytes) -> None:
    """Put other content in the place of a file; its other names (hard links) keep theirs."""
    status = path.stat()
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(content)
    other.chmod(status.st_mode)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def _forget(project: OwnCache) -> None:
    """Let the engine have nothing, so that all of the cache is used again."""
    for reference in ("imgbuild-small/tensorflow", "imgbuild/base"):
        found = project.docker("images", "-q", reference).stdout.split()
        if found:
            project.docker("rmi", "--force", *{*found}, code=0)
    for image in {*project.docker("images", "-aq").stdout.split()}:
        project.docker("rmi", "--force", image)
    project.run("clean", "--only", "build-cache", "--yes")


@pytest.mark.parametrize(
    ("damage", "spared"),
    [(_truncate, {"base"}), (_garble, set[str]())],  # the base takes half a minute: once is enough
)
def test_every_kind_of_file_is_damaged_and_made_right(
    project: OwnCache, damage: Callable[[Path], None], spared: set[str]
) -> None:
    found = {path.relative_to(project.state.parent).parts[2]: path for path in project.files()}
    assert {*found} >= {"base", "contexts", "downloads", "uv", "reports"}
    files = [path for kind, path in found.items() if kind not in spared]
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    _forget(project)
    for path in files:
        damage(path)
    result = project.run(*ONE)
    assert ("the base image in the cache is damaged" in result.stderr) is not bool(spared)
    assert f"{CPYTHON} in the cache was damaged" in result.stderr
    assert project.check_names() == 2
    assert project.left() == []
    for path, digest in before.items():
        if "reports" not in path.parts:  # its image is another now
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, path


def test_a_damaged_verdict_is_none(project: OwnCache) -> None:
    """The suites run again, for an image that is there and has its names."""
    (report,) = [
        path
        for path in (project.state / "imgbuild" / "reports").iterdir()
        if path.stem in {one.id.removeprefix("sha256:") for one in project.named().values()}
    ]
    _truncate(report)
    result = project.run(*ONE)
    assert "testing" in result.stderr
    assert project.check_names() == 2
