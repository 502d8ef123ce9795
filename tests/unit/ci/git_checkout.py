"""A copy of the real checkout in a git repository of its own, to change and to commit."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from project_copy import ProjectCopy, copied

from imgbuild.ci.changed import changed_since, this_checkout
from imgbuild.doctor.diagnosis import write_settings
from imgbuild.inputs import build_inputs as inputs
from imgbuild.project import Project
from imgbuild.settings import BootstrapBase, Settings


def git(root: Path, *arguments: str, content: bytes = b"") -> str:
    """Return what git prints, without the user's configuration, hooks or identity."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    result = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments],
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
        input=content,
        capture_output=True,
        check=True,
    )
    return result.stdout.decode().strip()


def commit(root: Path, message: str = "another") -> str:
    """Commit everything; return the commit."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(root, "rev-parse", "HEAD")


@dataclass(frozen=True)
class GitCheckout(ProjectCopy):
    """A checkout that a test may change, and the settings of its machine."""

    project: Project
    settings: Settings

    @property
    def root(self) -> Path:
        return self.project.root

    def changes(
        self, reference: str = "HEAD", settings: Settings | None = None
    ) -> tuple[Mapping[str, str], list[str]]:
        """Return the images that ``matrix --changed-since`` finds, and what it says."""
        said: list[str] = []
        images, used = self.images, settings or self.settings
        known = inputs.prepare_inputs(images, used, self.project, print, make=False)
        now = this_checkout(self.project, images, known)
        return changed_since(reference, now, self.project, used, said.append), said

    def changed(self, reference: str = "HEAD") -> Mapping[str, str]:
        """Return the reasons of the changed images."""
        return self.changes(reference)[0]

    @contextmanager
    def copy(self, folder: Path) -> Iterator["GitCheckout"]:
        """Give another copy, with its repository, state and cache; check that no work is left."""
        shutil.copytree(self.root, folder / "checkout", symlinks=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            patch.setattr(inputs, "uv_context", lambda _: Path("/uv"))
            write_settings(self.settings, folder / "checkout" / "imgbuild.local.yaml")
            yield GitCheckout(Project(folder / "checkout"), self.settings)
        work = folder / "state" / "imgbuild" / "work"
        assert not work.exists() or not [*work.iterdir()]


def git_checkout(project: Project, root: Path, settings: Settings) -> GitCheckout:
    """Return a copy of the real checkout, committed."""
    copied(project, root, "pyproject.toml", "README.md")
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "first")
    return GitCheckout(Project(root), settings)


@pytest.fixture(scope="module")
def committed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> GitCheckout:
    settings = Settings(base={"debian-12": BootstrapBase()})
    return git_checkout(project, tmp_path_factory.mktemp("committed") / "checkout", settings)


@pytest.fixture
def checkout(committed: GitCheckout, tmp_path: Path) -> Iterator[GitCheckout]:
    with committed.copy(tmp_path) as made:
        yield made
