"""A copy of the real checkout in a git repository of its own, to change and to commit."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from imgbuild.ci.changed import changed_since, this_checkout
from imgbuild.dockerfile.render import render_all, write_all
from imgbuild.inputs import build_inputs as inputs
from imgbuild.matrix.images import Image, all_images, documented_family
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project
from imgbuild.settings import Settings

#: Nothing of the user's git configuration, hooks or identity.
ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(root: Path, *arguments: str) -> str:
    """Return what git prints."""
    result = subprocess.run(
        ["git", "-C", str(root), *arguments],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


def commit(root: Path, message: str = "another") -> str:
    """Commit everything; return the commit."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(root, "rev-parse", "HEAD")


@dataclass(frozen=True)
class GitCheckout:
    """A checkout that a test may change, and the settings of its machine."""

    project: Project
    settings: Settings

    @property
    def root(self) -> Path:
        return self.project.root

    @property
    def images(self) -> tuple[Image, ...]:
        return all_images(load_matrix(self.project.matrix))

    def replace(self, name: str, old: str, new: str) -> None:
        """Replace one piece of text, which must be there."""
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text, f"{name} no longer holds {old!r}"
        (self.root / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    def edit_matrix(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the matrix as plain values."""
        document = yaml.load(self.project.matrix.read_bytes(), Loader=yaml.BaseLoader)  # noqa: S506
        change(document)
        text = yaml.safe_dump(document, sort_keys=False, width=1000)
        self.project.matrix.write_text(text, encoding="utf-8")

    def render(self) -> None:
        """Do what ``imgbuild render`` does."""
        matrix = load_matrix(self.project.matrix)
        images = (*all_images(matrix), *documented_family(matrix))
        rendered = render_all(images, self.project.templates, self.project.dockerfiles)
        write_all(rendered, self.project.dockerfiles)

    def changes(
        self, reference: str = "HEAD", settings: Settings | None = None
    ) -> tuple[Mapping[str, str], list[str]]:
        """Return the images that ``matrix --changed-since`` finds, and what it says."""
        said: list[str] = []
        images, used = self.images, settings or self.settings
        now = this_checkout(
            self.project,
            images,
            inputs.prepare_inputs(images, used, self.project, print, make=False),
        )
        return changed_since(reference, now, self.project, used, said.append), said

    def changed(self, reference: str = "HEAD") -> Mapping[str, str]:
        """Return the reasons of the changed images."""
        return self.changes(reference)[0]

    def named(self, wanted: Callable[[Image], bool]) -> set[str]:
        """Return the names of the images that ``wanted`` is true of: some, or the test is void."""
        found = {image.name for image in self.images if wanted(image)}
        assert found, "no image of the matrix is of the kind that this test is about"
        return found

    @contextmanager
    def copy(self, folder: Path) -> Iterator["GitCheckout"]:
        """Give another copy, with its repository, state and cache; check that no work is left."""
        shutil.copytree(self.root, folder / "checkout", symlinks=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            patch.setattr(inputs, "uv_context", lambda _: Path("/uv"))
            yield GitCheckout(Project(folder / "checkout"), self.settings)
        work = folder / "state" / "imgbuild" / "work"
        assert not work.exists() or not [*work.iterdir()]


def git_checkout(project: Project, root: Path, settings: Settings) -> GitCheckout:
    """Return a copy of the real checkout, committed."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(project.root / "images", root / "images", ignore=ignore)
    for name in ("matrix.yaml", "pyproject.toml", "README.md"):
        shutil.copy(project.root / name, root / name)
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "first")
    return GitCheckout(Project(root), settings)


@pytest.fixture(scope="module")
def committed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> GitCheckout:
    return git_checkout(project, tmp_path_factory.mktemp("committed") / "checkout", Settings())


@pytest.fixture
def checkout(committed: GitCheckout, tmp_path: Path) -> Iterator[GitCheckout]:
    with committed.copy(tmp_path) as made:
        yield made
