"""The command line as users have it: output, one paragraph for an error, exit codes."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from project_copy import NO_ENGINE, copied, imgbuild
from typer.testing import CliRunner

from imgbuild.cli import COMMANDS, interruption, register, require_values
from imgbuild.dockerfile import conda, requirements
from imgbuild.errors import ImgbuildError, InputError, MachineError
from imgbuild.matrix.images import whole_family
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project
from imgbuild.text import printable
from releases import release_of


@pytest.fixture(scope="module")
def unchanged(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout that no test writes to."""
    return copied(project, tmp_path_factory.mktemp("checkout")).root


@pytest.fixture
def checkout(project: Project, tmp_path: Path) -> Path:
    return copied(project, tmp_path).root


def _run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code, and its error or its output."""
    app = typer.Typer(rich_markup_mode=None)
    register(app)
    words = [arguments[0], "--project", str(folder), *arguments[1:]]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200", **NO_ENGINE})
    if isinstance(result.exception, ImgbuildError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "columns", "count"),
    [
        ((), "image python mpi horovod cuda", lambda matrix: len(whole_family(matrix))),
        (("2.2", "2.2-gpu"), "image python mpi horovod cuda", 2),
        (("--tf", "2.2"), "image python mpi horovod cuda", 5),
        (("--tf", "2.2", "--gpu"), "image python mpi horovod cuda", 2),
        (
            ("--stack", "debian", "--mpi", "openmpi"),
            "image python mpi horovod cuda",
            lambda matrix: sum(image.mpi_name == "openmpi-4.1.4" for image in whole_family(matrix)),
        ),
        (("--as-documented", "--gpu"), "image python mpi horovod cuda", 3),
        (("--name", "tf-2.2-gpu-ubuntu"), "image python mpi horovod cuda", 1),
    ],
)
def test_list_has_all_that_fits(
    unchanged: Path,
    options: tuple[str, ...],
    columns: str,
    count: int | Callable[[Matrix], int],
    matrix: Matrix,
) -> None:
    count = count if isinstance(count, int) else count(matrix)
    head, *lines = _run(unchanged, "list", *options)[1].splitlines()
    names = [line.split()[0] for line in lines if line.startswith("tf-")]
    assert (head.split(), len(names)) == (columns.split(), count)
    assert any("as-documented: the documented" in line for line in lines) == any(
        "documented" in name for name in names
    )
    listed = json.loads(_run(unchanged, "list", *options, "--json")[1])
    assert {one["name"] for one in listed} == {*names}
    assert all(one["as_documented"] == ("documented" in one["name"]) for one in listed)


def test_a_wide_list_has_drivers_sizes_and_tags(unchanged: Path) -> None:
    lines = _run(unchanged, "list", "--wide")[1].splitlines()
    for image in whole_family(load_matrix(unchanged / "matrix.yaml")):
        (line,) = (line for line in lines if line.startswith(f"{image.name} "))
        driver, size = (image.cuda and image.cuda.driver, image.budget)
        assert line.split()[-2 - len(image.tags) :] == [
            *(driver or "-", f"{size / 1e6:.0f}" if size else "-"),
            *image.tags,
        ]


def test_list_has_a_paragraph_for_each_release(unchanged: Path, matrix: Matrix) -> None:
    titles = re.findall(r"^TensorFlow (.+), Tens", _run(unchanged, "list")[1], re.MULTILINE)
    assert titles == [*matrix.tensorflow]


@pytest.mark.parametrize(
    ("words", "name"),
    [(("show",), "tf-2.2-cpu-debian"), (("build", "--plan", "--gpu"), "tf-2.2-gpu-ubuntu")],
)
def test_without_a_version_a_line_says_which_is_taken(
    unchanged: Path, words: tuple[str, ...], name: str
) -> None:
    said = imgbuild(unchanged, *words, env=NO_ENGINE).stderr.splitlines()[0]
    assert said.startswith(f"No version was named: taking TensorFlow 2.2 ({name}). --tf VERSION")
    assert "named" not in imgbuild(unchanged, *words, "--tf", "2.2", env=NO_ENGINE).stderr


def test_build_as_documented_warns_first(unchanged: Path) -> None:
    arguments = ("build", "--tf", "2.1", "--gpu", "--as-documented", "--plan", "--json")
    result = imgbuild(unchanged, *arguments, env=NO_ENGINE)
    paragraphs = result.stderr.splitlines()
    assert "cuda 10.0 in place of 10.1" in paragraphs[0]
    assert "breaks the rule tensorflow-cuda" in paragraphs[1]
    assert "What will happen:" in paragraphs[1]
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--stack", "\x1b[31mX\u202ey"), r"\u001b[31mX\u202ey"),
        (("--stack", "\x1b]0;title\x07\x9b2J\x7f"), r"\u001b]0;title\u0007\u009b2J\u007f"),
        (("\udce9",), r"'\udce9' has unprintable"),
        (("\x1b[31mX",), r"'\u001b[31mX' has unprintable"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_terminal_obeys_nothing_of_a_message(
    unchanged: Path, words: tuple[str, ...], shown: str, form: str
) -> None:
    variables = {"IMGBUILD_LOG_FORMAT": form, "PYTHONIOENCODING": "utf-8"}
    result = imgbuild(unchanged, "show", "--tf", "2.2", *words, env=variables)
    assert result.returncode == 2
    assert "".join(result.stderr.split("\n")).isprintable()
    said = result.stderr
    if form == "json":
        *_, last = map(json.loads, said.splitlines())
        said = printable(last.get("error") or last["text"])
    assert shown in said


def test_a_terminal_obeys_nothing_of_a_result(checkout: Path) -> None:
    path = checkout / "matrix.yaml"
    support = "    support: standard support ended in May 2023"
    text = path.read_text().replace(support, f"{support}\u202eé ✓\u2066")
    path.write_text(text, encoding="utf-8")
    words = ("show", "--tf", "2.2", "--stack", "ubuntu")
    result = imgbuild(checkout, *words, env={"PYTHONIOENCODING": "utf-8"})
    assert (result.returncode, result.stderr) == (0, "")
    assert "\\u202eé" in result.stdout
    assert "".join(result.stdout.split("\n")).isprintable()


@pytest.mark.parametrize("command", ["render", "lock"])
def test_check_passes_on_a_clean_checkout(unchanged: Path, command: str) -> None:
    result = imgbuild(unchanged, command, "--check")
    assert (result.returncode, result.stderr) == (0, "")


def test_render_check_fails_on_drift_and_render_mends_it(checkout: Path) -> None:
    path = checkout / "images" / "dockerfiles" / "tf-2.2-cpu-debian" / "Dockerfile"
    number = path.read_text().splitlines().index("FROM base AS os") + 1
    path.write_text(path.read_text().replace("FROM base AS os", "FROM scratch AS os"))
    code, message = _run(checkout, "render", "--check")
    assert code == 1
    assert f"images/dockerfiles/tf-2.2-cpu-debian/Dockerfile:{number}: differs" in message
    assert "committed: FROM scratch AS os\n  rendered:  FROM base AS os" in message
    assert _run(checkout, "render")[0] == 0
    assert _run(checkout, "render", "--check")[0] == 0


def test_lock_check_fails_on_a_changed_matrix_and_a_stale_lock(checkout: Path) -> None:
    matrix = checkout / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("protobuf==3.19.6", "protobuf==3.19.5"))
    (checkout / "images" / "locks" / "tf-9.9.9-py3.6-cpu.txt").write_text("")
    code, message = _run(checkout, "lock", "--check")
    assert code == 1
    assert f"images/locks/tf-{release_of('1.10')}-py3.6-cpu.txt: has protobuf 3.19.6" in message
    assert "tf-9.9.9-py3.6-cpu.txt: belongs to no image of the matrix" in message


def test_lock_writes_all_locks_or_none(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is lost after a few locks, then it is back."""
    uv, left, lost = checkout / "uv", checkout / "left", checkout / "lost"
    lost.touch()
    fault = f"[ ! -e {lost} ] || [ $(wc -l < {left}) -lt 3 ] || {{ echo dns error >&2; exit 2; }}"
    lock = f"pip==1 \\\\\\n    --hash=sha256:{'0' * 64}"
    uv.write_text(f"#!/bin/sh\necho >> {left}\n{fault}\nprintf '{lock}\\n' > lock.txt\n")
    uv.chmod(0o755)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(uv))
    locks = checkout / "images" / "locks"
    (locks / "tf-9.9.9-py3.6-cpu.txt").touch()
    before = {path: path.read_bytes() for path in locks.glob("*.txt")}
    code, message = _run(checkout, "lock", "--all", "--stack", "debian")
    assert (code, "cannot be reached" in message) == (3, True)
    assert before == {path: path.read_bytes() for path in locks.glob("*.txt")}
    lost.unlink()
    code, output = _run(checkout, "lock", "--all", "--stack", "debian")
    assert code == 0
    assert f"resolving tf-{release_of('2.2')}-py3.6-cpu.txt" in output, "it takes minutes"
    assert f"written  tf-{release_of('2.2')}-py3.6-cpu.txt" in output
    assert "deleted  tf-9.9.9-py3.6-cpu.txt" in output
    after = {path: path.read_bytes() for path in locks.glob("*.txt")}
    assert sum(before[path] != after[path] for path in after) == output.count("written")


def test_lock_writes_what_came_where_a_channel_cannot_be_read(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object) -> str:
        raise MachineError("no connection.")

    monkeypatch.setattr(requirements, "resolve", lambda *_, **__: "new\n")
    monkeypatch.setattr(conda, "_repodata", unread)
    code, message = _run(checkout, "lock", "--upgrade")
    assert (code, "no connection." in message) == (3, True)
    locks = checkout / "images" / "locks"
    assert (locks / f"tf-{release_of('2.2')}-py3.6-cpu.txt").read_text() == "new\n"
    assert "unlocked" not in (locks / "conda-3.6.2.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("show --tf 9.9", "--tf '9.9': no such TensorFlow in the matrix. Nearest: 2."),
        ("show 2.2-gup", "tf-2.2-gpu-ubuntu"),
        ("fetch 2.2-gup /nowhere", "tf-2.2-gpu-ubuntu"),
        ("run 2.2-gup -- python x.py", "tf-2.2-gpu-ubuntu"),
        ("push", "--tf VERSION or --all"),
        ("show --tf 2.2 --gpu --stack debian", "No image of TensorFlow 2.2 fits --gpu"),
        ("show --tf 1.10 --as-documented", "tf-1.10-cpu-debian has no"),
        ("show --tf 2.2 --stack a;b", "--stack 'a;b': there is none"),
        ("test --tf 2.2 --suite nope", "No suite nope. There are: contents"),
        (
            "test --tf 2.2 --cpu --suite gpu_runs",
            "No suite of tf-2.2-cpu-debian is called gpu_runs. There are: contents",
        ),
        ("test --tf 2.2 --expect tf=2.2", "give it with --image, and without"),
        ("test --expect tf=2.2", "give it with --image"),
        ("test --tf 2.2 --report /etc/passwd", "Invalid value for '--report'"),
        ("build --tf 2.2 --report /etc/passwd", "Invalid value for '--report'"),
        ("test --image x --expect no=1", "'no=1': give KEY=VALUE, with a key of"),
        ("test --image x --expect tf=2.2 --suite nope", "No suite nope. There are: contents"),
        ("test --image= --all", "--image names one image"),
        ("test --image x --all", "--image names one image"),
        ("test --tf 2.2 --jobs 0", "--jobs"),
        ("lock --check --upgrade", "--check cannot be combined"),
        ("build --tf 2.2 --jobs 0", "--jobs"),
        ("build --tf 2.2 --plan --refresh-base", "cannot be combined"),
        ("build --tf 2.2 --step-timeout 10", "'10' is not a duration, such as"),
        ("build --tf 2.2 --offline ./nowhere", "--offline nowhere: no such folder"),
        ("build --tf 2.2 --offline . --refresh-base", "drop --refresh-base"),
        ("build --tf 2.2 --cache-from user/cache", "--cache-from: 'user/cache' is"),
        ("build --tf 2.2 --cache-to type=gha", "--cache-to: 'type=gha' is"),
        ("build --tf 2.2 --from x", "--from needs --pull"),
        ("build --tf 2.2 --pull --from x", "--from: 'x' is not HOST[:PORT]/REPOSITORY"),
        ("push --tf 2.2 --to user:secret@registry.test/app", "docker login HOST"),
        ("push --tf 2.2 --to repository", "--to: 'repository' is not HOST[:PORT]/REPOSITORY"),
        ("push --tf 2.2 --to=", "--to: '' is not HOST[:PORT]/REPOSITORY"),
        ("push --tf 2.2 --release today", "'today' is no release; give YYYYMMDD.N"),
        ("push --tf 2.2 --release=", "--release '' is no release"),
        ("push --tf 2.2 --allow-skipped horovod", "this suite cannot be left out"),
        ("nonsense", "nonsense"),
    ],
)
def test_wrong_input_is_one_message_and_exit_code_2(
    unchanged: Path, arguments: str, expected: str
) -> None:
    code, message = _run(unchanged, *arguments.split())
    assert code == 2
    assert expected in message
    assert "secret" not in message


def test_a_second_signal_lets_an_interrupted_command_remove_its_folders() -> None:
    program = """
import atexit, os, signal
from unittest.mock import Mock
from imgbuild import cli
cli.app = Mock(side_effect=SystemExit(130))
atexit.register(lambda: (os.kill(os.getpid(), signal.SIGTERM), print("removed")))
cli.main()
"""
    result = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert result.returncode == 130
    assert result.stdout == "removed\n"
    assert "Traceback" not in result.stderr


def test_an_error_is_one_paragraph(checkout: Path) -> None:
    (checkout / "matrix.yaml").write_text("images: [\n  a: b: c\n")
    result = imgbuild(checkout, "build", "--tf", "2.2\n")
    assert result.returncode == 2
    assert result.stderr.startswith("imgbuild: matrix.yaml:2:")
    assert "not YAML" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("full", [False, True])
def test_a_fault_of_the_program_is_one_paragraph_and_a_log(tmp_path: Path, full: bool) -> None:
    program = """
import os
from unittest.mock import Mock
from imgbuild import cli
if "FULL" in os.environ:
    os.fdopen = Mock(side_effect=OSError(28, "No space left on device"))
cli.app = Mock(side_effect=KeyError("two\\nlines"))
cli.main()
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path), **({"FULL": "1"} if full else {})},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 3
    assert result.stderr.startswith("imgbuild: imgbuild itself failed: KeyError: ")
    assert result.stderr.count("\n") == 1
    (log,) = tmp_path.iterdir()
    assert ("The traceback is lost" if full else str(log)) in result.stderr
    assert full or log.read_text().startswith("Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("checkout/images/x", "It is a part of the project: give this user the right to use it"),
        ("cache/x", "XDG_CACHE_HOME"),
    ],
)
def test_what_this_user_may_not_use(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "matrix.yaml").touch()
    program = f"""
from unittest.mock import Mock
from imgbuild import cli
cli.app = Mock(side_effect=PermissionError(13, "Permission denied", "{tmp_path / place}"))
cli.main()
"""
    result = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1
    assert f"{tmp_path / place}: Permission denied" in result.stderr
    assert said in result.stderr


@pytest.mark.parametrize("arguments", [["clean"], ["build", "--tf", "2.2"]])
def test_a_user_without_a_home_folder(unchanged: Path, arguments: list[str]) -> None:
    program = """
import pwd
from unittest.mock import Mock
from imgbuild import cli
pwd.getpwuid = Mock(side_effect=KeyError)
cli.main()
"""
    variables = {"HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "DOCKER_CONFIG", "DOCKER_HOST"}
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=unchanged,
        env={name: value for name, value in os.environ.items() if name not in variables},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 3
    assert result.stderr.startswith("imgbuild: Neither HOME nor an entry of the user")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["loop", "loop/inside", "a" * 5000], ids=["loop", "in", "long"])
def test_a_project_that_cannot_be_looked_at(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("other")
    (tmp_path / "other").symlink_to("loop")
    code, message = _run(tmp_path / name, "list")
    assert code == 2
    assert "no such folder" in message


def test_a_project_that_does_not_exist_is_not_the_checkout_around_it(unchanged: Path) -> None:
    code, message = _run(unchanged / "nowhere", "list")
    assert (code, message) == (2, f"--project {unchanged}/nowhere: no such folder.")


@pytest.mark.parametrize(
    "words", [("fetch", "a" * 5000, "--tf", "2.2"), ("--settings", "a" * 5000, "size")]
)
def test_a_name_that_no_file_can_have(unchanged: Path, words: tuple[str, ...]) -> None:
    result = imgbuild(unchanged, *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert "… is too long a name for a file. Give a shorter one." in result.stderr


def test_outside_a_checkout(tmp_path: Path) -> None:
    result = imgbuild(tmp_path, "list")
    assert result.returncode == 2
    assert "Run imgbuild inside a checkout, or name one with --project" in result.stderr


def test_a_folder_that_cannot_be_written(checkout: Path) -> None:
    target = checkout / "images" / "dockerfiles"
    shutil.rmtree(target)
    target.write_text("a file where the folder should be")
    result = imgbuild(checkout, "render")
    assert result.returncode == 3
    assert "Cannot write" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("show", "--tf", "2.2", "--stack", ""), "--stack"),
        (("show", "--tf", "2.2", "--stack="), "--stack"),
        (("build", "--plan", ""), "--plan"),
        (("", "list"), "imgbuild"),
        (("--mirror", "", "list"), "--mirror"),
        (("--settings", " ", "list"), "--settings"),
        (("list", "--project", ""), "--project"),
        (("matrix", "--all", "--changed-since", ""), "--changed-since"),
        (("fetch", "", "--tf", "2.2"), "fetch"),
    ],
)
def test_an_empty_value_is_no_value(words: tuple[str, ...], option: str) -> None:
    with pytest.raises(InputError, match=f"The value after {option} is empty") as error:
        require_values([*words])
    assert error.value.exit_code == 2
    require_values([*words, "--help"])


def test_a_folder_in_place_of_a_file_is_not_a_lack_of_space(checkout: Path) -> None:
    path = checkout / "images" / "dockerfiles" / "tf-2.2-cpu-debian" / "Dockerfile"
    path.unlink()
    path.mkdir()
    result = imgbuild(checkout, "render")
    assert result.returncode == 3
    assert f"{path}: Is a directory" in result.stderr
    assert "free space" not in result.stderr


@pytest.mark.parametrize("command", ["build", "test"])
def test_no_engine(checkout: Path, command: str, tmp_path: Path) -> None:
    buildx = tmp_path / "cli-plugins" / "docker-buildx"
    buildx.parent.mkdir()
    buildx.write_text("#!/bin/sh\necho github.com/docker/buildx v0.29.1 x\n")
    buildx.chmod(0o755)
    env = {**NO_ENGINE, "DOCKER_CONFIG": str(tmp_path)}
    result = imgbuild(checkout, command, "--tf", "2.2", env=env)
    assert result.returncode == 3
    assert "unix:///nonexistent/docker.sock" in result.stderr
    assert "imgbuild doctor" in result.stderr


@pytest.mark.parametrize("command", ["build", "test"])
def test_no_docker_client(checkout: Path, command: str) -> None:
    env = {"PATH": str(checkout), "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    result = imgbuild(checkout, command, "--tf", "2.2", env=env)
    assert result.returncode == 3
    assert "No docker client on PATH" in result.stderr


def test_the_suites_are_listed_without_an_engine(unchanged: Path) -> None:
    head, *lines = imgbuild(unchanged, "test", "--list-suites", env=NO_ENGINE).stdout.splitlines()
    assert head.split() == ["suite", "runs", "images", "needs", "proves"]
    assert any(line.startswith("pins ") and " every pinned version" in line for line in lines)
    listed = json.loads(_run(unchanged, "test", "--list-suites", "--json")[1])
    assert {"suite", "proves", "variants", "needs", "on_demand"} == listed[0].keys()


def test_the_version(unchanged: Path, tmp_path: Path) -> None:
    """Whose images are used is said in the second line, and never fails."""
    assert f"\nImages: {unchanged}\n" in imgbuild(unchanged / "images", "--version").stdout
    named = imgbuild(tmp_path, "--version", env={"IMGBUILD_PROJECT": str(unchanged)})
    assert f"\nImages: {unchanged}\n" in named.stdout
    for project in ("", "/nonexistent"):
        result = imgbuild(tmp_path, "--version", env={"IMGBUILD_PROJECT": project})
        number, images = result.stdout.splitlines()
        assert re.fullmatch(r"imgbuild \d[\w.+]*", number)
        assert images.startswith("Images: none. ")


def _completed(folder: Path, *words: str) -> list[str]:
    """Return what the shell offers for the last word; the program says nothing else."""
    env = {"COMP_WORDS": " ".join(("imgbuild", *words)), "COMP_CWORD": str(len(words))}
    result = imgbuild(folder, env={**env, "_IMGBUILD_COMPLETE": "complete_bash"})
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("build", "--tf", "1.1"), ["1.10", "1.11", "1.12", "1.13", "1.14", "1.15"]),
        (("lock", "--stack", ""), ["debian", "ubuntu"]),
        (("list", "--mpi", "i"), ["intelmpi"]),
        (
            ("test", "--name", "tf-2.2-cpu-debian"),
            ["tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi"],
        ),
        (("bui",), ["build"]),
    ],
)
def test_the_shell_completes_values(
    unchanged: Path, tmp_path: Path, words: tuple[str, ...], offered: list[str]
) -> None:
    assert _completed(unchanged, *words) == offered
    command, *rest = words
    elsewhere = ("--project", str(unchanged), *rest) if rest else ()
    assert _completed(tmp_path, command, *elsewhere) == offered


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_completing_says_no_error(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "matrix.yaml").write_text("images: [")
    assert _completed(tmp_path, "build", "--project", str(tmp_path / folder), "--tf", "2") == []


def test_help_has_whole_summaries_and_words_for_values() -> None:
    app = typer.Typer(rich_markup_mode=None)
    register(app)
    found = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    summaries = found.partition("Commands:\n")[2].splitlines()
    assert len(summaries) == len(COMMANDS)
    assert [line for line in summaries if line.endswith("...")] == []
    word = re.compile(r"[A-Z]{2,}([=/:][A-Z]+)?|<[a-z|]+>")
    for name in COMMANDS:
        text = CliRunner().invoke(app, [name, "--help"]).output
        values = re.findall(r"^  --[\w-]+ ([^\s/]\S*)", text.partition("Options:")[2], re.MULTILINE)
        assert [one for one in values if not word.fullmatch(one)] == [], name


def test_help_imports_nothing_heavy() -> None:
    """What makes --help slow is imports; the time itself is measured in benchmarks/."""
    program = (
        "import sys\nfrom imgbuild.cli import app, register\nregister(app)\n"
        "heavy = {'docker', 'pydantic', 'yaml', 'jinja2', 'requests', 'tempfile'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["build", "--all"], "Images that passed are tagged"),
        (["--settings", "file", "push", "--tf", "2.2"], "Run the same command again"),
        (["test"], "Nothing is left running"),
        (["published", "--from", "registry.test/app"], "Nothing is left running"),
        ([], "Nothing is left running"),
    ],
)
def test_the_message_of_an_interrupt(words: list[str], expected: str) -> None:
    assert interruption(words).startswith("interrupted. ")
    assert expected in interruption(words)
