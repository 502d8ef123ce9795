"""The command line as users have it: output, one paragraph for an error, exit codes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from imgbuild.build.source_metadata import MetadataReader
from imgbuild.cli import interruption, require_values
from imgbuild.core.errors import ImgbuildError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.locks import conda, requirements
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from support.fake_uv import write_fake_uv
from support.project_copy import NO_ENGINE, ROOT, copied, imgbuild, invoke, run_main
from support.releases import release_of

MOCK = "from unittest.mock import Mock\n"


@pytest.fixture(scope="module")
def unchanged(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout that no test writes to."""
    return copied(project, tmp_path_factory.mktemp("checkout")).root


@pytest.fixture
def checkout(project: Project, tmp_path: Path) -> Path:
    return copied(project, tmp_path).root


def _run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code, and its error or its output."""
    words = (arguments[0], "--project", str(folder), *arguments[1:])
    result = invoke(*words, env={"COLUMNS": "200", **NO_ENGINE})
    if isinstance(result.exception, ImgbuildError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), None),
        (("2.2", "tf-2.2-gpu-ubuntu"), 2),
        (("--tf", "2.2", "--gpu"), 1),
    ],
)
def test_list_has_all_that_fits(
    unchanged: Path, options: tuple[str, ...], count: int | None, matrix: Matrix
) -> None:
    text = _run(unchanged, "list", *options)[1]
    lines = [line.split() for line in text.splitlines()]
    names = [line[0] for line in lines if line[:1] and line[0].startswith("tf-")]
    assert len(names) == (count or len(all_images(matrix)))
    listed = json.loads(_run(unchanged, "list", *options, "--json")[1])
    assert {one["name"] for one in listed} == {*names}
    if count is None:
        assert re.findall(r"^TensorFlow (.+), Tens", text, re.MULTILINE) == [*matrix.tensorflow]


def test_a_wide_list_has_drivers_sizes_and_tags(unchanged: Path) -> None:
    lines = _run(unchanged, "list", "--wide")[1].splitlines()
    for image in all_images(load_matrix(unchanged / "matrix.yaml")):
        (line,) = (line for line in lines if line.startswith(f"{image.name} "))
        driver, size = (image.cuda and image.cuda.driver, image.budget)
        facts = [driver or "-", f"{size / 1e6:.0f}" if size else "-", *image.tags]
        assert line.split()[-len(facts) :] == facts


@pytest.mark.parametrize(
    ("words", "name"),
    [(("show",), "tf-2.2-cpu-debian"), (("build", "--dry-run", "--gpu"), "tf-2.2-gpu-ubuntu")],
)
def test_without_a_version_a_line_says_which_is_taken(
    unchanged: Path, words: tuple[str, ...], name: str
) -> None:
    said = run_main(unchanged, *words, env=NO_ENGINE).stderr.splitlines()[0]
    assert said.startswith(f"No version was named: using TensorFlow 2.2 ({name}). ")
    assert "named" not in run_main(unchanged, *words, "--tf", "2.2", env=NO_ENGINE).stderr


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--stack", "\x1b[31mX\u202ey"), r"\u001b[31mX\u202ey"),
        (("--stack", "\x1b]0;title\x07\x9b2J\x7f"), r"\u001b]0;title\u0007\u009b2J\u007f"),
        (("\udce9",), r"'\udce9' has unprintable"),
        (("\x1b[31mX",), r"'\u001b[31mX' has unprintable"),
    ],
)
def test_a_terminal_obeys_nothing_of_a_message(
    unchanged: Path, words: tuple[str, ...], shown: str
) -> None:
    result = run_main(unchanged, "show", "--tf", "2.2", *words)
    assert result.returncode == 2
    assert "".join(result.stderr.split("\n")).isprintable()
    assert shown in result.stderr


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
    assert _run(checkout, "lock", "--check")[0] == 0
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
    files = r'lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n'
    answer = f"printf '{lock}\\n' > lock.txt; printf '{files}' > pylock.toml"
    write_fake_uv(uv, f"echo >> {left}\n{fault}\n{answer}")
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(uv))
    monkeypatch.setattr(MetadataReader, "requirements", lambda *_: {})
    stale = checkout / "images" / "locks" / "tf-9.9.9-py3.6-cpu.txt"
    stale.touch()
    before = {path: path.read_bytes() for path in stale.parent.glob("*.txt")}
    code, message = _run(checkout, "lock", "--refresh", "--stack", "debian")
    assert (code, "cannot be reached" in message) == (3, True)
    assert before == {path: path.read_bytes() for path in stale.parent.glob("*.txt")}
    lost.unlink()
    code, output = _run(checkout, "lock", "--refresh", "--stack", "debian")
    assert (code, f"deleted  {stale.name}" in output, stale.exists()) == (0, True, False)
    written = re.findall(r"written  (\S+\.txt)", output)
    del before[stale]
    assert {*written} == {one.name for one in before if before[one] != one.read_bytes()}
    assert f"resolving {written[0]}" in output, "it takes minutes"


def test_lock_writes_what_came_where_a_channel_cannot_be_read(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object) -> str:
        raise MachineError("no connection.")

    for name in ("resolve_lock", "resolve_like"):
        monkeypatch.setattr(requirements, name, lambda *_, **__: "new\n")
    monkeypatch.setattr(conda, "_read_repodata", unread)
    code, message = _run(checkout, "lock", "--upgrade")
    assert (code, "no connection." in message) == (3, True)
    locks = checkout / "images" / "locks"
    assert (locks / f"tf-{release_of('2.2')}-py3.6-cpu.txt").read_text() == "new\n"
    assert "unlocked" not in (locks / "conda-3.6.2.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("show --tf 9.9", "--tf '9.9': no such TensorFlow in the matrix. Nearest: 2.21."),
        ("show --tf 1.9", "--tf '1.9': no such TensorFlow in the matrix. Nearest: 1.10."),
        ("show 2.2-gup", "tf-2.2-gpu-ubuntu"),
        ("run 2.2-gup -- python x.py", "tf-2.2-gpu-ubuntu"),
        ("push", "--tf VERSION or --all"),
        ("build 2.15-cpu-arm64 --fetch d", "`imgbuild build --fetch` is only for"),
        ("doctor --tf 2.2 --platform linux/arm64", "there is no tf-2.2-cpu-debian"),
        ("doctor --tf 2.2 --platform arm64", "use linux/amd64, linux/arm64 or all"),
        ("show --tf 2.2 --gpu --stack debian", "No image of TensorFlow 2.2 fits --gpu"),
        ("show --tf 2.2 --stack a;b", "--stack 'a;b' is not in the matrix"),
        ("test --tf 2.2 --suite nope", "No suite nope. Available suites: contents"),
        (
            "test --tf 2.2 --cpu --suite gpu_runs",
            "No suite of tf-2.2-cpu-debian is called gpu_runs, because it is not an image for GPUs",
        ),
        ("test --tf 2.2 --report /etc/passwd", "Invalid value for '--report'"),
        ("build --tf 2.2 --report /etc/passwd", "Invalid value for '--report'"),
        ("test x/y:1 --all", "x/y:1 must equal one image"),
        ("test --tf 2.2 --jobs 0", "--jobs"),
        ("lock --check --upgrade", "--check cannot be combined"),
        ("build --tf 2.2 --dry-run --refresh", "cannot be combined"),
        ("build --tf 2.2 --step-timeout 10", "'10' is not a duration, such as"),
        ("build --tf 2.2 --offline ./nowhere", "--offline nowhere: no such folder"),
        ("build --tf 2.2 --offline . --refresh", "--offline cannot be combined with --refresh"),
        ("build --tf 2.2 --fetch x --json", "--fetch cannot be combined with --json"),
        ("build --tf 2.2 --fetch x --fail-fast", "--fetch cannot be combined"),
        ("build --fetch pyproject.toml", "not a folder"),
        ("build --tf 2.2 --buildkit-cache type=gha", "--buildkit-cache: 'type=gha' is"),
        ("build --tf 2.2 --from x", "--from requires --pull"),
        *(
            (f"{words} --builder a;b", "--builder a;b: ")
            for words in ("build --dry-run", "extend -t me/x:1 --env A=1", "doctor", "clean")
        ),
        ("build --tf 2.2 --pull --from x", "--from: 'x' is not HOST[:PORT]/REPOSITORY"),
        ("push --tf 2.2 --to user:secret@registry.test/app", "docker login HOST"),
        ("push --tf 2.2 --to=", "--to: '' is not HOST[:PORT]/REPOSITORY"),
        ("push --tf 2.2 --release today", "'today' is not a release. Give YYYYMMDD.N"),
        ("push --tf 2.2 --allow-skipped horovod", "this suite cannot be skipped"),
        ("add 2.3", "'2.3' is not a release"),
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


def test_a_second_signal_lets_an_interrupted_command_remove_its_folders(tmp_path: Path) -> None:
    result = imgbuild(
        tmp_path,
        before=f"{MOCK}import atexit, os, signal\n"
        "cli.app = Mock(side_effect=SystemExit(130))\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGTERM), print('removed')))",
    )
    assert (result.returncode, result.stdout) == (130, "removed\n")
    assert "Traceback" not in result.stderr


def test_an_error_is_one_paragraph(checkout: Path) -> None:
    (checkout / "matrix.yaml").write_text("images: [\n  a: b: c\n")
    result = imgbuild(checkout, "build", "--tf", "2.2\n")
    assert result.returncode == 2
    assert result.stderr.startswith("imgbuild: matrix.yaml:2:")
    assert "not YAML" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("full", [False, True])
def test_a_fault_of_the_program_is_one_paragraph_and_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("imgbuild.cli.app", Mock(side_effect=KeyError("two\nlines")))
    if full:
        monkeypatch.setattr("os.fdopen", Mock(side_effect=OSError(28, "No space left on device")))
    result = run_main(tmp_path)
    assert result.returncode == 3
    assert result.stderr.startswith("imgbuild: imgbuild itself failed: KeyError: ")
    assert result.stderr.count("\n") == 1
    (log,) = tmp_path.iterdir()
    assert ("The traceback is lost" if full else str(log)) in result.stderr
    assert full or log.read_text().startswith("Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("place", "said"), [("checkout/images/x", "belongs to the checkout"), ("x", "XDG_CACHE_HOME")]
)
def test_what_this_user_may_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "matrix.yaml").touch()
    error = PermissionError(13, "Permission denied", str(tmp_path / place))
    monkeypatch.setattr("imgbuild.cli.app", Mock(side_effect=error))
    result = run_main(tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (3, 1)
    assert f"{tmp_path / place}: Permission denied" in result.stderr
    assert said in result.stderr


@pytest.mark.parametrize("arguments", [["clean"], ["build", "--tf", "2.2"]])
def test_a_user_without_a_home_folder(
    unchanged: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "DOCKER_CONFIG", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", Mock(side_effect=KeyError))
    result = run_main(unchanged, *arguments)
    assert (result.returncode, result.stderr.count("\n")) == (3, 1)
    assert re.match(r"imgbuild: The user \d+ has no home folder: HOME is not set", result.stderr)


@pytest.mark.parametrize(
    "name", ["nowhere", "loop", "loop/inside", "a" * 5000], ids=["none", "loop", "in", "long"]
)
def test_a_project_that_cannot_be_looked_at(unchanged: Path, tmp_path: Path, name: str) -> None:
    """Nor is it the checkout around it."""
    (tmp_path / "loop").symlink_to("other")
    (tmp_path / "other").symlink_to("loop")
    folder = unchanged if name == "nowhere" else tmp_path
    for command in ("list", "clean"):
        code, message = _run(folder / name, command)
        assert (code, "no such folder" in message) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("build", "--fetch", "a" * 5000, "--tf", "2.2"),
        ("--settings", "a" * 5000, "build", "--dry-run"),
    ],
)
def test_a_name_that_no_file_can_have(unchanged: Path, words: tuple[str, ...]) -> None:
    result = run_main(unchanged, *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert "… is too long for a file name." in result.stderr


def test_outside_a_checkout(tmp_path: Path) -> None:
    result = run_main(tmp_path, "list")
    assert result.returncode == 2
    assert "Run imgbuild inside a checkout, or use --project" in result.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("show", "--tf", "2.2", "--stack", ""), "--stack"),
        (("show", "--tf", "2.2", "--stack="), "--stack"),
        (("build", "--dry-run", ""), "--dry-run"),
        (("", "list"), "imgbuild"),
        (("--mirror", "", "list"), "--mirror"),
        (("--settings", " ", "list"), "--settings"),
        (("list", "--project", ""), "--project"),
        (("matrix", "--all", "--from", ""), "--from"),
        (("build", "--fetch", ""), "--fetch"),
    ],
)
def test_an_empty_value_is_no_value(words: tuple[str, ...], option: str) -> None:
    with pytest.raises(InputError, match=f"The value of {option} is empty") as error:
        require_values([*words])
    assert error.value.exit_code == 2
    require_values([*words, "--help"])


@pytest.mark.parametrize("there", ["folder", "file"])
def test_what_is_in_the_place_of_a_file_or_folder_is_no_lack_of_space(
    checkout: Path, there: str
) -> None:
    folder = checkout / "images" / "dockerfiles"
    path = folder / "tf-2.2-cpu-debian" / "Dockerfile" if there == "folder" else folder
    shutil.rmtree(folder)
    path.mkdir(parents=True) if there == "folder" else path.touch()
    result = run_main(checkout, "render")
    assert result.returncode == 3
    assert str(path) in result.stderr
    assert "free space" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["build", "test"])
@pytest.mark.parametrize(
    ("client", "said"), [(True, NO_ENGINE["DOCKER_HOST"]), (False, "no docker client on PATH")]
)
def test_no_engine_or_no_docker_client(
    unchanged: Path, command: str, tmp_path: Path, client: bool, said: str
) -> None:
    """Nothing is made for an engine that is not there."""
    buildx = tmp_path / "cli-plugins" / "docker-buildx"
    buildx.parent.mkdir()
    buildx.write_text("#!/bin/sh\necho github.com/docker/buildx v0.29.1 x\n")
    buildx.chmod(0o755)
    env = {"DOCKER_CONFIG": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    path = {} if client else {"PATH": str(unchanged)}
    result = run_main(unchanged, command, "--tf", "2.2", env={**NO_ENGINE, **env, **path})
    assert result.returncode == 3
    assert said in result.stderr
    assert ("imgbuild doctor" in result.stderr) is client
    assert not (tmp_path / "cache").exists()


def test_the_suites_are_listed_without_an_engine(unchanged: Path) -> None:
    text = _run(unchanged, "test", "--list-suites")[1]
    assert re.search("^pins .* every pinned version", text, re.MULTILINE)
    listed = json.loads(_run(unchanged, "test", "--list-suites", "--json")[1])
    assert {"suite", "proves", "variants", "needs", "on_demand"} == listed[0].keys()


def test_the_version(unchanged: Path, tmp_path: Path) -> None:
    """Whose images are used is said in the second line, and never fails."""
    assert f"\nImages: {unchanged}\n" in run_main(unchanged / "images", "--version").stdout
    for project, said in (
        (str(unchanged), f"Images: {unchanged}"),
        ("", "Images: none. "),
        ("/nonexistent", "Images: none. "),
    ):
        result = run_main(tmp_path, "--version", env={"IMGBUILD_PROJECT": project})
        number, images = result.stdout.splitlines()
        assert re.fullmatch(r"imgbuild \d[\w.+]*", number)
        assert images.startswith(said)


def test_the_package_runs_as_a_module(unchanged: Path) -> None:
    command = [sys.executable, "-m", "imgbuild", "--version"]
    result = subprocess.run(command, cwd=unchanged, capture_output=True, text=True, check=True)
    assert result.stdout == imgbuild(unchanged, "--version").stdout


def _completed(folder: Path, *words: str) -> list[str]:
    """Return what the shell offers for the last word; the program says nothing else."""
    env = {"COMP_WORDS": " ".join(("imgbuild", *words)), "COMP_CWORD": str(len(words))}
    result = run_main(folder, env={**env, "_IMGBUILD_COMPLETE": "complete_bash"})
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("build", "--tf", "1.1"), ["1.10", "1.11", "1.12", "1.13", "1.14", "1.15"]),
        (("lock", "--stack", ""), ["debian", "ubuntu"]),
        (("list", "--mpi", "i"), ["intelmpi"]),
        (("test", "tf-1.10-cpu-d"), ["tf-1.10-cpu-debian"]),
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


def test_help_imports_nothing_heavy() -> None:
    """What makes --help slow is imports; the time itself is measured in benchmarks/."""
    heavy = {"docker", "pydantic", "yaml", "jinja2", "requests", "tempfile"}
    said = f"lambda: print(sorted({heavy} & sys.modules.keys()), file=sys.stderr)"
    result = imgbuild(ROOT, "--help", before=f"import atexit, sys\natexit.register({said})")
    assert (result.returncode, result.stderr) == (0, "[]\n")


def test_an_interrupt_says_what_is_left_behind() -> None:
    assert "Images that passed are tagged" in interruption(["build", "--all"])
    push = ["--settings", "file", "push", "--tf", "2.2"]
    assert "Run the same command again" in interruption(push)
    assert "Nothing is left running" in interruption(
        ["release", "list", "--from", "registry.test/app"]
    )
