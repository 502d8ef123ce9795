"""Words of command lines and files that mean two things, or that a terminal would obey."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from imgbuild.cli.options import sites_of
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project, SettingsOptions
from imgbuild.core.scalars import Megabytes
from imgbuild.core.settings import load_settings
from imgbuild.dockerfile.render import find_drift
from imgbuild.extend.extension import parse_extension, read_extension
from imgbuild.maintain.jobs import JobOptions, select_jobs
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from support.project_copy import ROOT, command, run_main

#: The tests' own checkout may belong to another user.
NAMED = {"IMGBUILD_PROJECT": str(ROOT)}
LOGIN = "https://me:s3cret@example.org/x"


def test_no_file_has_keys_by_names_of_the_code(
    edited: Callable[..., Path], refusal: Callable[[Path], str], tmp_path: Path
) -> None:
    for known, own in (("schema: ", "schema_version: "), ("from: index", "origin: index")):
        assert f"unknown key '{own.partition(':')[0]}'" in refusal(edited(known, own))
    path = tmp_path / "file.yaml"
    path.write_text("cpython: {3.6.15: {source: prefix, path: /opt/p}}\n")
    with pytest.raises(InputError, match=r"file\.yaml:1:.*'source'"):
        load_settings(path)
    path.write_text("copied: [a:/b]\n")
    with pytest.raises(InputError, match=r"file\.yaml:1:1: unknown key 'copied'"):
        read_extension(path)


def test_a_mirror_of_nothing_is_refused_before_anything_is_asked(
    images: dict[str, Image], matrix: Matrix
) -> None:
    project = Project(ROOT, SettingsOptions(mirrors=("nosuch=http://127.0.0.1:1/",)))
    options = JobOptions(missing=True, repository="127.0.0.1:1/x")
    with pytest.raises(InputError, match="mirrors: the matrix has no nosuch"):
        select_jobs(project, (images["tf-2.2-cpu-debian"],), options, print)
    with pytest.raises(InputError, match="nosuch"):  # what `lock`, `audit` and `add` ask
        sites_of(project, matrix)
    project = Project(ROOT, SettingsOptions(mirrors=("debian=http://127.0.0.1:1/",)))
    assert sites_of(project, matrix).settings.mirrors.keys() == {"debian"}


@pytest.mark.parametrize(
    ("number", "second"),
    [
        ('driver: "450.80.02"', 'driver: "0450.80.02"'),
        ('version: "18.04"', 'version: "018.04"'),
        ('newest: "7.5"', 'newest: "07.5"'),
        ('cuda: "10.1"', 'cuda: "010.1"'),
    ],
)
def test_a_number_has_one_spelling(
    edited: Callable[..., Path], refusal: Callable[[Path], str], number: str, second: str
) -> None:
    assert repr(second.split('"')[1]) in refusal(edited(number, second))
    with pytest.raises(ValidationError):
        TypeAdapter(Megabytes).validate_python("0531")


@pytest.mark.parametrize("value", ["a\u2028b", "\u202egnp.exe", "\u2066x"])
def test_nothing_that_is_added_turns_or_ends_a_line(value: str) -> None:
    assert parse_extension({"env": {"A": "né 日本"}}).env == {"A": "né 日本"}
    with pytest.raises(InputError, match="no line ends or control characters"):
        parse_extension({"env": {"A": value}})


@pytest.mark.parametrize("value", ["${localEnv:TOKEN}", "x${containerWorkspaceFolder}"])
def test_a_devcontainer_puts_nothing_into_a_value(value: str) -> None:
    words = ("run", "--project", str(ROOT), "--tf", "2.2", "--format", "devcontainer", "--env")
    with pytest.raises(InputError, match=re.escape(value)):
        command(*words, f"A={value}")
    assert '"A": "$b{c}"' in command(*words, "A=$b{c}").stdout


def test_of_a_long_line_that_drifted_the_beginning_is_shown(tmp_path: Path) -> None:
    path, long = tmp_path / "Dockerfile", "x" * 3_000_000
    path.write_text(f"old{long}\n")
    (told,) = find_drift({path: f"new{long}\n"}, tmp_path)
    assert len(told) < 3000
    assert "oldx" in told
    assert "newx" in told


@pytest.mark.parametrize("words", [("list", LOGIN), (LOGIN,), ("list", "--stack", LOGIN)])
def test_no_login_is_quoted(words: tuple[str, ...]) -> None:
    done = run_main(ROOT, *words, env=NAMED)
    assert done.returncode == 2
    assert "example.org/x" in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("words", [("list", "--tf", "9"), ("list", "--nope"), ("nope",)])
def test_the_exit_code_is_the_same_where_no_error_can_be_written(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", "from imgbuild.cli import main; main()", *words]
    environment = {**os.environ, **NAMED}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, cwd=ROOT, stderr=full, env=environment, check=False)
    assert done.returncode == 2
