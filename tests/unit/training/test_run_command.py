"""``imgbuild run``: what a user gives, and what is refused before anything happens."""

import os
from pathlib import Path

import pytest
from run_words import IMAGE, PROGRAM, PUSHED, docker_lines, printed, ran

from imgbuild.cli import own_words
from imgbuild.text import printable

MPIRUN = "mpirun -np {} --oversubscribe -bind-to none "


def _train(text: str) -> list[str]:
    (words,) = docker_lines(text)
    return words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Name the program to run"),
        (("--", "-c", "x"), "Name the program to run"),
        (("--", "", "x"), "Name the program to run"),
        (("--", "python", "\x1b[1m"), "has characters that do not print"),
        (("--all-is-well", *PROGRAM), "No such option"),
        (("--mount", "data", *PROGRAM), "--mount 'data'"),
        (("--mount", "data:relative", *PROGRAM), "TARGET is an absolute path"),
        (("--mount", "data:/data:wx", *PROGRAM), "SOURCE:TARGET:ro"),
        (("--mount", "./none:/data", *PROGRAM), "--mount './none'"),
        (("--mount", "-x:/data", *PROGRAM), "--mount '-x'"),
        (("--mount", "data:/work", *PROGRAM), "--code mounts /work"),
        (("--mount", "data:/model", *PROGRAM), "--checkpoints mounts /model"),
        (("--mount", "data:/./work", *PROGRAM), "--code mounts /work"),
        (("--mount", "data:/a/../model", *PROGRAM), "--checkpoints mounts /model"),
        (("--mount", "data:/a/..", *PROGRAM), "TARGET is an absolute path"),
        (("--mount", "a1:/d", "--mount", "a2:/d/", *PROGRAM), "--mount: /d "),
        (("--checkpoints", "a b", *PROGRAM), "--checkpoints 'a b'"),
        (("--checkpoints", "./none", *PROGRAM), "--checkpoints './none'"),
        (("--code", "~nobody-of-this-name", *PROGRAM), "no such folder"),
        (("--code", "none", *PROGRAM), "--code 'none'"),
        (("--env", "1A=2", *PROGRAM), "--env '1A=2'"),
        (("--user", "me", *PROGRAM), "--user 'me'"),
        (("--gpus", "some", *PROGRAM), "--gpus 'some'"),
        (("--shm-size", "1t", *PROGRAM), "--shm-size '1t'"),
        (("--time-limit", "5", *PROGRAM), "--time-limit: '5'"),
        (("-np", "0", *PROGRAM), "0 is not in the range"),
        (("--job", "Train", *PROGRAM), "--job 'Train'"),
        (("--tensorboard", "--logs", *PROGRAM), "--tensorboard '--logs'"),
        (("--image", "a b", *PROGRAM), "--image 'a b'"),
        (("--image", "a:1", "--tf", "2.2", *PROGRAM), "only --cpu, --gpu and --mpi can say"),
        (("--image", "a:1", "--mpi", "mpich", *PROGRAM), "--mpi 'mpich'"),
        (("--tf", "2.1", "--tf", "2.2", *PROGRAM), "`run` "),
        (("--tf", "2.21", "--mpi", "no-mpi", "-np", "2", *PROGRAM), "has no MPI"),
        (("--tf", "2.2", "--gpu", "--stack", "none", *PROGRAM), "--stack 'none'"),
    ],
)
def test_bad_input_is_one_paragraph(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    selection = () if {"--image", "--tf"} & {*words} else ("--image", "a:1")
    code, text = ran(tmp_path, *selection, *words)
    assert code == 2
    if "option" not in says and "range" not in says:  # Typer's own have a usage before them
        assert says in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("form", "words", "fact"),
    [
        ("slurm", ("--checkpoints", "kept"), "kept: "),
        ("slurm", ("--nodes", "2", "--mpi", "intelmpi"), "--nodes: Intel MPI"),
        ("slurm", ("--gpus", "device=0,1"), "--gpus device=0,1: "),
        ("slurm", ("--code", "a,b"), "/a,b:/work: "),  # Apptainer cannot mount it
        ("compose", ("--nodes", "2", "-np", "3"), "-np 3 on --nodes 2: "),
        ("compose", ("--ps", "1", "-np", "2"), "-np "),
        ("compose", ("--nodes", "2", "--user", "7"), "--user 7: "),
        ("mpijob", ("--mount", "/usr:/data"), "/usr: "),
        ("mpijob", ("--checkpoints", "My_Claim"), "My_Claim: "),
        ("mpijob", ("--mount", "shm:/d"), "shm: "),
        ("tfjob", ("--checkpoints", "code"), "code: "),
        ("mpijob", ("--env", "TOKEN"), "TOKEN: --env"),
        ("mpijob", ("--gpus", "device=0"), "--gpus device=0: "),
    ],
)
def test_what_a_format_cannot_mean_is_one_paragraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, words: tuple[str, ...], fact: str
) -> None:
    (tmp_path / "a,b").mkdir()
    monkeypatch.chdir(tmp_path)
    code, text = ran(tmp_path, "--image", PUSHED, "--format", form, *words, *PROGRAM)
    assert (code, text.count("\n")) == (2, 0)
    assert fact in text


#: What each format lacks, and a format that has it.
LACKS = {
    "docker": {"--nodes 2": "compose", "--ps 2": "compose"},
    "compose": {"--exec": "docker", "--port 80": "docker or devcontainer"},
    "slurm": {"--shm-size 2g": "docker", "--user 0": "docker", "--tensorboard x": "docker"},
    "mpijob": {"--user 7": "docker", "--ps 1": "compose or tfjob", "--tensorboard x": "docker"},
    "tfjob": {"-np 2": "docker", "--exec": "docker", "--time-limit 1h": ""},
    "devcontainer": {"-np 2": "docker", "--nodes 2": "compose", "--time-limit 1h": "docker"},
}


@pytest.mark.parametrize("form", LACKS)
def test_what_a_format_lacks_is_refused_with_those_that_have_it(tmp_path: Path, form: str) -> None:
    program = () if form == "devcontainer" else PROGRAM
    for option, others in LACKS[form].items():
        words = option.split()
        code, text = ran(tmp_path, "--image", "h:1/a:1", "--format", form, *words, *program)
        if not others:
            assert code == 0, text
            continue
        assert (code, text.count("\n")) == (2, 0)
        assert text.startswith(f"{words[0]}: --format {form} ")
        assert others in text
    if not program:
        code, text = ran(tmp_path, "--image", "a:1", "--format", form, *PROGRAM)
        assert (code, text.startswith("a program: --format devcontainer")) == (2, True)


@pytest.mark.parametrize("form", ["mpijob", "tfjob", "slurm"])
def test_other_machines_need_the_name_of_a_registry(tmp_path: Path, form: str) -> None:
    code, text = ran(tmp_path, "--tf", "2.2", "--format", form, *PROGRAM)
    assert (code, text.count("\n")) == (2, 0)
    assert IMAGE in text
    assert "`imgbuild push" in text


@pytest.mark.parametrize("name", ["a:b", "a\n- b", "a\x1bb"])
def test_a_path_that_cannot_be_mounted_or_shown(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    code, text = ran(folder, *PROGRAM)
    assert code == 2
    assert text == printable(text).replace("\n", "")


def test_the_user_is_who_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    monkeypatch.setattr(os, "getgid", lambda: 99)
    words = _train(ran(tmp_path, "--tf", "2.2", *PROGRAM)[1])
    assert words[words.index("--user") + 1] == "4321:99"
    assert "HOME=/tmp" in words
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert "--user" not in _train(ran(tmp_path, "--tf", "2.2", *PROGRAM)[1])
    words = _train(ran(tmp_path, "--tf", "2.2", "--user", "1000", *PROGRAM)[1])
    assert "HOME=/tmp" not in words, "mpiuser has a home"


@pytest.mark.parametrize(
    ("words", "image", "gpus"),
    [
        (("--tf", "2.2"), IMAGE, None),
        (("--tf", "2.12", "--gpu"), "imgbuild/tensorflow:2.12-gpu", "all"),
        (("--tf", "2.12", "--gpu", "--gpus", "none"), "imgbuild/tensorflow:2.12-gpu", None),
        (("--tf", "2.12", "--gpu", "--gpus", "2"), "imgbuild/tensorflow:2.12-gpu", "2"),
        (("--image", "team/train:7"), "team/train:7", None),
        (("--image", "team/train:7", "--gpu"), "team/train:7", "all"),
        (("--image", "a", "--gpus", "device=0,1"), "a", '"device=0,1"'),
    ],
)
def test_gpus_are_those_that_the_image_can_use(
    tmp_path: Path, words: tuple[str, ...], image: str, gpus: str | None
) -> None:
    found = _train(ran(tmp_path, *words, *PROGRAM)[1])
    assert found[-3:] == [image, "python", "train.py"]
    assert (found[found.index("--gpus") + 1] if gpus else None) == gpus
    assert ("--gpus" in found, "memlock=-1" in found) == (gpus is not None, gpus is not None)


@pytest.mark.parametrize(("ranks", "size"), [(1, "1g"), (8, "1g"), (9, "1152m"), (16, "2g")])
def test_shared_memory_grows_with_the_ranks(tmp_path: Path, ranks: int, size: str) -> None:
    words = _train(printed(tmp_path, "-np", str(ranks), *PROGRAM))
    assert words[words.index("--shm-size") + 1] == size
    words = _train(printed(tmp_path, "-np", str(ranks), "--shm-size", "3g", *PROGRAM))
    assert words[words.index("--shm-size") + 1] == "3g"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ((), ""),
        (("-np", "2"), MPIRUN.format(2)),
        (("-np", "2", "--mpi", "intelmpi"), "mpirun -np 2 "),
        (
            ("--time-limit", "1m30s"),
            "timeout --foreground --signal=TERM --kill-after=30 90 ",
        ),
        (
            ("-np", "3", "--time-limit", "1h"),
            f"timeout --foreground --signal=USR1 --kill-after=30 3600 {MPIRUN.format(3)}",
        ),
    ],
)
def test_what_starts_the_ranks_and_ends_them(
    tmp_path: Path, words: tuple[str, ...], command: str
) -> None:
    line = printed(tmp_path, *words, *PROGRAM).splitlines()[-1].strip()
    assert line == f"{command}python train.py"


def test_what_is_after_the_dashes_is_the_program_s(tmp_path: Path) -> None:
    words = _train(printed(tmp_path, "--", "python", "a b.py", "--tf", "$HOME", "", "--help"))
    assert words[-5:] == ["a b.py", "--tf", "$HOME", "", "--help"]
    assert own_words(["run", "--tf", "2.2", "--", "x", "--log-format", "json", "--y", ""]) == [
        *("run", "--tf", "2.2")
    ]
