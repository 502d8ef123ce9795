"""The command line as a user has it: output, one paragraph on errors, exit codes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from imgbuild.project import Project


@pytest.fixture
def checkout(tmp_path: Path, project: Project) -> Path:
    """Return a copy of the files that the pure commands read."""
    shutil.copytree(project.root / "images", tmp_path / "images")
    shutil.copytree(
        project.suites, tmp_path / "tests" / "image", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(project.matrix, tmp_path / "matrix.yaml")
    return tmp_path


def _imgbuild(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from imgbuild.cli import main; main()", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def test_list_is_a_table(checkout: Path) -> None:
    result = _imgbuild(checkout, "list")
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[0].split() == [
        "image", "tensorflow", "python", "mpi", "horovod", "tensorboard", "cuda",
    ]  # fmt: skip
    assert len(lines) == 35


def test_list_of_images_without_cuda_has_no_column_for_it(checkout: Path) -> None:
    lines = _imgbuild(checkout, "list", "--stack", "debian").stdout.splitlines()
    assert lines[0].split()[-1] == "tensorboard"
    assert len(lines) == 15


def test_list_of_the_images_as_documented(checkout: Path) -> None:
    lines = _imgbuild(checkout, "list", "--as-documented", "--gpu").stdout.splitlines()
    names = [line.split()[0] for line in lines[1:]]
    assert names == [f"tf-{minor}-gpu-ubuntu-as-documented" for minor in ("2.1", "2.2", "2.3")]


def test_list_as_json(checkout: Path) -> None:
    images = json.loads(_imgbuild(checkout, "list", "--stack", "debian", "--json").stdout)
    assert len(images) == 14
    assert images[8]["tags"][0] == "imgbuild/tensorflow:2.2-cpu-debian"


def test_show_is_text_or_json(checkout: Path) -> None:
    selection = ("show", "--tf", "2.3", "--stack", "debian")
    assert _imgbuild(checkout, *selection).stdout.startswith("tf-2.3-cpu-debian\n")
    shown = json.loads(_imgbuild(checkout, *selection, "--json").stdout)
    pins = {pin["component"]: pin for pin in shown[0]["pins"]}
    assert pins["python"]["sha256"].startswith("6e28d7cd")


def test_show_as_documented(checkout: Path) -> None:
    text = _imgbuild(checkout, "show", "--tf", "2.1", "--gpu", "--as-documented").stdout
    assert text.startswith("tf-2.1-gpu-ubuntu-as-documented\n")
    assert "\ncuda         10.0\n" in text


@pytest.mark.parametrize("how", [("--plan",), ("--plan", "--json"), ("--no-test",)])
def test_build_as_documented_warns_first(checkout: Path, how: tuple[str, ...]) -> None:
    arguments = ("build", "--tf", "2.1", "--gpu", "--as-documented", *how)
    result = _imgbuild(checkout, *arguments, env=NO_ENGINE)
    paragraphs = result.stderr.splitlines()
    assert "cuda 10.0 in place of 10.1" in paragraphs[0]
    assert "breaks the rule tensorflow-cuda" in paragraphs[1]
    assert "What will happen:" in paragraphs[1]
    assert result.stdout == ""


def test_render_check_and_lock_check_pass_on_a_clean_checkout(checkout: Path) -> None:
    for command in ("render", "lock"):
        result = _imgbuild(checkout, command, "--check")
        assert (result.returncode, result.stderr) == (0, "")


def test_render_check_fails_on_drift_and_render_mends_it(checkout: Path) -> None:
    path = checkout / "images" / "dockerfiles" / "tf-2.2-cpu-debian" / "Dockerfile"
    number = path.read_text().splitlines().index("FROM base AS os") + 1
    path.write_text(path.read_text().replace("FROM base AS os", "FROM scratch AS os"))
    result = _imgbuild(checkout, "render", "--check")
    assert result.returncode == 1
    where = "images/dockerfiles/tf-2.2-cpu-debian/Dockerfile"
    assert f"{where}:{number}: differs" in result.stderr
    assert "committed: FROM scratch AS os\n  rendered:  FROM base AS os" in result.stderr
    assert _imgbuild(checkout, "render").returncode == 0
    assert _imgbuild(checkout, "render", "--check").returncode == 0


def test_lock_check_fails_on_a_changed_matrix(checkout: Path) -> None:
    matrix = checkout / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("protobuf==3.19.6", "protobuf==3.19.5"))
    result = _imgbuild(checkout, "lock", "--check")
    assert result.returncode == 1
    assert "images/locks/tf-1.10.0-py3.6-cpu.txt: has protobuf 3.19.6" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("show", "--tf", "9.9"), 2, "--tf 9.9: no such TensorFlow in the matrix. There are: 1.10"),
        (("show",), 2, "Select images with --tf VERSION or --all"),
        (
            ("show", "--tf", "2.2", "--gpu", "--stack", "debian"),
            2,
            "No image is TensorFlow 2.2, gpu",
        ),
        (
            ("show", "--tf", "1.10", "--as-documented"),
            2,
            "tf-1.10-cpu-ubuntu is as documented already",
        ),
        (("show", "--tf", "2.2", "--stack", "a;b"), 2, "No image is TensorFlow 2.2"),
        (("build", "--tf", "2.2\n"), 2, "is not a version such as 2.2"),
        (("test", "--tf", "2.2", "--suite", "nope"), 2, "No suite nope. There are: contents"),
        (
            ("test", "--tf", "2.2", "--cpu", "--suite", "gpu_runs"),
            2,
            "No suite of cpu images is called gpu_runs. There are: contents",
        ),
        (("test", "--tf", "2.2", "--expect", "tf=2.2"), 2, "give it with --image, and without"),
        (("test", "--expect", "tf=2.2"), 2, "give it with --image"),
        (("test", "--image", "x", "--expect", "no=1"), 2, "'no=1': give KEY=VALUE, with a key of"),
        (("test", "--image", "x", "--all"), 2, "--image names one image"),
        (("test", "--tf", "2.2", "--jobs", "0"), 2, "--jobs"),
        (("lock", "--check", "--upgrade"), 2, "give one of them"),
        (("build", "--tf", "2.2", "--jobs", "0"), 2, "--jobs"),
        (("build", "--tf", "2.2", "--plan", "--refresh-base"), 2, "cannot be combined"),
        (("build", "--tf", "2.2", "--step-timeout", "10"), 2, "'10' is not a duration, such as"),
        (("build", "--tf", "2.2", "--all"), 2, "give --tf or --all, not both"),
        (("nonsense",), 2, "nonsense"),
    ],
)
def test_wrong_input_is_one_paragraph_and_exit_code_2(
    checkout: Path, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    result = _imgbuild(checkout, *arguments)
    assert result.returncode == code
    assert expected in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["list", "render", "lock", "build"])
def test_a_matrix_that_is_not_yaml(checkout: Path, command: str) -> None:
    (checkout / "matrix.yaml").write_text("images: [\n  a: b: c\n")
    arguments = ("--tf", "2.2") if command == "build" else ()
    result = _imgbuild(checkout, command, *arguments)
    assert result.returncode == 2
    assert "matrix.yaml:2:" in result.stderr
    assert "not YAML" in result.stderr


def test_outside_a_checkout(tmp_path: Path) -> None:
    result = _imgbuild(tmp_path, "list")
    assert result.returncode == 2
    assert "Run imgbuild inside a checkout, or name one with --project" in result.stderr


def test_a_folder_that_cannot_be_written(checkout: Path) -> None:
    target = checkout / "images" / "dockerfiles"
    shutil.rmtree(target)
    target.write_text("a file where the folder should be")
    result = _imgbuild(checkout, "render")
    assert result.returncode == 3
    assert "Cannot write" in result.stderr
    assert "Traceback" not in result.stderr


NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock", "HOME": "/nonexistent"}


@pytest.mark.parametrize("arguments", [("build", "--tf", "2.2"), ("test", "--tf", "2.2")])
def test_no_engine(checkout: Path, arguments: tuple[str, ...], tmp_path: Path) -> None:
    buildx = tmp_path / "cli-plugins" / "docker-buildx"
    buildx.parent.mkdir()
    buildx.write_text("#!/bin/sh\necho github.com/docker/buildx v0.29.1 x\n")
    buildx.chmod(0o755)
    result = _imgbuild(checkout, *arguments, env={**NO_ENGINE, "DOCKER_CONFIG": str(tmp_path)})
    assert result.returncode == 3
    assert "unix:///nonexistent/docker.sock" in result.stderr
    assert "imgbuild doctor" in result.stderr


def test_wrong_settings_are_named(checkout: Path) -> None:
    (checkout / "imgbuild.local.yaml").write_text("cpython:\n  3.6.15: {from: prefix}\n")
    result = _imgbuild(checkout, "build", "--tf", "2.2")
    assert result.returncode == 2
    assert "imgbuild.local.yaml:2:3: missing key 'path'" in result.stderr


def test_a_lock_of_no_image_is_found(checkout: Path) -> None:
    """A release that is replaced by another leaves its lock behind; `imgbuild lock` deletes it."""
    stale = checkout / "images" / "locks" / "tf-9.9.9-py3.6-cpu.txt"
    stale.write_text("")
    result = _imgbuild(checkout, "lock", "--check")
    assert "tf-9.9.9-py3.6-cpu.txt: belongs to no image of the matrix" in result.stderr
    assert result.returncode == 1


def test_the_suites_are_listed_without_an_engine(checkout: Path) -> None:
    env = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    result = _imgbuild(checkout, "test", "--list-suites", env=env)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["suite", "runs", "images", "needs", "proves"]
    assert any(line.startswith("pins ") and " every pinned version" in line for line in lines)
    listed = json.loads(_imgbuild(checkout, "test", "--list-suites", "--json", env=env).stdout)
    assert {"suite", "proves", "variants", "needs", "on_demand"} == listed[0].keys()


def test_the_version(checkout: Path) -> None:
    assert _imgbuild(checkout, "--version").stdout.startswith("imgbuild 0.")


@pytest.mark.parametrize("command", ["build", "test"])
def test_no_docker_client(checkout: Path, command: str) -> None:
    """It is said before anything is built."""
    env = {"PATH": str(checkout), "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    result = _imgbuild(checkout, command, "--tf", "2.2", env=env)
    assert result.returncode == 3
    assert "No docker client on PATH" in result.stderr


def test_help_names_every_command(checkout: Path) -> None:
    text = _imgbuild(checkout, "--help").stdout
    for command in ("list", "show", "render", "build", "test", "lock", "doctor"):
        assert f" {command} " in text


def test_help_imports_nothing_heavy() -> None:
    """What makes --help slow is imports; the time itself is measured in benchmarks/."""
    program = (
        "import sys\nfrom imgbuild.cli import app, register\nregister(app)\n"
        "heavy = {'docker', 'pydantic', 'yaml', 'jinja2', 'requests'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
