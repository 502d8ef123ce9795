"""A copy of the real project that a test may change, and the command line run in it."""

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from imgbuild.cli import app, main, register
from imgbuild.core.errors import ImgbuildError
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import render_all, write_all
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix

#: The tests' own checkout.
ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "image" / "programs"

#: Variables with which no engine is found.
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock", "HOME": "/dev/null"}


#: Matrices by all that makes them; many copies have the same.
_LOADED: dict[tuple[bytes, bytes, frozenset[str]], Matrix] = {}


def loaded(project: Project) -> Matrix:
    """Return the matrix of a copy; equal files are loaded once."""
    return load_once(project.matrix)


def load_once(path: Path) -> Matrix:
    """Do what `load_matrix` does, once for equal files."""
    project = Project(path.parent)
    try:
        keyrings = frozenset(keyring.name for keyring in project.keyrings.iterdir())
        content = (path.read_bytes(), project.evidence.read_bytes(), keyrings)
    except OSError:
        return load_matrix(path)
    if content not in _LOADED:
        _LOADED[content] = load_matrix(path)
    return _LOADED[content]


class ProjectCopy:
    """What can be done to a copy; ``project`` is the copy."""

    project: Project

    @property
    def images(self) -> tuple[Image, ...]:
        """Every image that the copy's matrix has now."""
        return all_images(loaded(self.project))

    def named(self, wanted: Callable[[Image], bool]) -> set[str]:
        """Return the names of the images that ``wanted`` is true of: some, or the test is void."""
        found = {image.name for image in self.images if wanted(image)}
        assert found, "no image of the matrix is of the kind that this test is about"
        return found

    def replace(self, name: str, old: str, new: str) -> None:
        """Replace one piece of text, which must be there, in a file."""
        path = self.project.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name} no longer holds {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def edit_matrix(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the matrix as plain values, all of them text."""
        document = yaml.load(self.project.matrix.read_bytes(), Loader=yaml.CBaseLoader)  # noqa: S506
        change(document)
        text = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, width=1000)
        self.project.matrix.write_text(text, encoding="utf-8")

    def render(self) -> list[Path]:
        """Do what ``imgbuild render`` does; return the Dockerfiles that changed."""
        matrix = loaded(self.project)
        rendered = render_all(all_images(matrix), self.project.templates, self.project.dockerfiles)
        return write_all(rendered, self.project.dockerfiles)


def copied(project: Project, root: Path, *more: str) -> Project:
    """Return a copy of what plans are made of, and of more files; no settings of this machine."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(project.root / "images", root / "images", ignore=ignore)
    shutil.copytree(project.suites, root / "tests" / "image", ignore=ignore)
    for name in ("matrix.yaml", *more):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(project.root / name, root / name)
    return Project(root)


def imgbuild(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder, with these variables too, and some code ``before`` it."""
    program = f"from imgbuild import cli\n{before}\ncli.main()\n"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def run_main(
    folder: Path, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Do what `imgbuild` does in this process, which takes a tenth of the time.

    Tests of imports, signals and streams need a process of their own.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with (
            chdir(folder),
            patch.dict(os.environ, {"COLUMNS": "200", **(env or {})}),
            patch.object(sys, "argv", ["imgbuild", *words]),
            patch.object(sys, "excepthook", sys.excepthook),
            redirect_stdout(out),
            redirect_stderr(err),
            _made_once(),
        ):
            main()
    except SystemExit as ending:
        code = ending.code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert isinstance(code, int)
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return subprocess.CompletedProcess(words, code, *texts)


@cache
def _commands() -> Any:
    """Return the commands, which typer would make anew for each call."""
    if not app.registered_commands:
        register(app)
    return get_command(app)


@contextmanager
def _made_once() -> Iterator[None]:
    """Let command lines in this process share the commands and equal matrices."""
    with (
        patch("imgbuild.cli.register"),
        patch("typer.main.get_command", lambda _: _commands()),
        patch("typer.testing._get_command", lambda _: _commands()),
        patch("imgbuild.matrix.load.load_matrix", load_once),
    ):
        yield


def invoke(*words: str, env: Mapping[str, str]) -> Result:
    """Run a command line in this process, however it ends."""
    with _made_once():
        return CliRunner().invoke(app, words, env=env)


def command(*words: str, env: Mapping[str, str] | None = None) -> Result:
    """Run a command line in this process, which must succeed; an error of imgbuild's is raised.

    It works on the tests' own checkout, unless a word names another.
    """
    result = invoke(*words, env={"IMGBUILD_PROJECT": str(ROOT), **(env or {})})
    if isinstance(result.exception, ImgbuildError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def with_images(folder: Path, project: Project) -> Path:
    """Return the folder with what a matrix in it names: the keyrings."""
    if not (folder / "images").exists():
        (folder / "images").symlink_to(project.root / "images")
    return folder
