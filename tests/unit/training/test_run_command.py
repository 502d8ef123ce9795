"""``imgbuild run``: what a user gives, and what is refused before anything happens."""

import os
from pathlib import Path

import pytest

from imgbuild.cli import own_words
from imgbuild.core.text import printable
from support.project_copy import ROOT, invoke
from support.run_words import ENVIRONMENT, IMAGE, PROGRAM, PUSHED, docker_lines, printed, ran

SLURM, COMPOSE, MPIJOB, TFJOB = (
    ("--format", form) for form in ("slurm", "compose", "mpijob", "tfjob")
)


def _train(text: str) -> list[str]:
    (words,) = docker_lines(text)
    return words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--",), "Name the program to run"),
        (("--", "-c", "x"), "Name the program to run"),
        (("--", "", "x"), "Name the program to run"),
        (("--", "python", "\x1b[1m"), "has characters that do not print"),
        (("--all-is-well",), ""),
        (("--mount", "data"), "--mount 'data'"),
        (("--mount", "data:relative"), "TARGET is an absolute path"),
        (("--mount", "data:/data:wx"), "SOURCE:TARGET:ro"),
        (("--mount", "./none:/data"), "--mount './none'"),
        (("--mount", "-x:/data"), "--mount '-x'"),
        (("--mount", "_ssh:/keys"), "--mount '_ssh'"),
        (("--mount", "data:/work"), "--code mounts /work"),
        (("--mount", "data:/./work"), "--code mounts /work"),
        (("--mount", "data:/a/../model"), "--checkpoints mounts /model"),
        (("--mount", "data:/a/.."), "TARGET is an absolute path"),
        (("--mount", "a1:/d", "--mount", "a2:/d/"), "--mount: /d "),
        (("--checkpoints", "a b"), "--checkpoints 'a b'"),
        (("--checkpoints", "./none"), "--checkpoints './none'"),
        (("--code", "~nobody-of-this-name"), "no such folder"),
        (("--code", "none"), "--code 'none'"),
        (("--env", "1A=2"), "--env '1A=2'"),
        (("--user", "me"), "--user 'me'"),
        (("--gpus", "some"), "--gpus 'some'"),
        (("--shm-size", "1t"), "--shm-size '1t'"),
        (("--time-limit", "5"), "--time-limit: '5'"),
        (("-np", "0"), ""),
        (("--job", "Train"), "--job 'Train'"),
        (("--tensorboard", "--logs"), "--tensorboard '--logs'"),
        (("--tf", "2.1", "--tf", "2.2"), "`run` "),
        (("--tf", "2.21", "--mpi", "no-mpi", "-np", "2"), "has no MPI"),
        (("--tf", "2.2", "--gpu", "--stack", "none"), "--stack 'none'"),
        # Other machines need the name of a registry.
        *(((*form, "--tf", "2.2"), IMAGE) for form in (SLURM, MPIJOB, TFJOB)),
        # What a format cannot mean.
        ((*SLURM, "--checkpoints", "kept"), "kept: "),
        ((*SLURM, "--nodes", "2", "--mpi", "intelmpi"), "--nodes: Intel MPI"),
        ((*SLURM, "--gpus", "device=0,1"), "--gpus device=0,1: "),
        ((*SLURM, "--code", "a,b"), "/a,b:/work: "),  # Apptainer cannot mount it
        ((*COMPOSE, "--nodes", "2", "-np", "3"), "-np 3 on --nodes 2: "),
        ((*COMPOSE, "--ps", "1", "-np", "2"), "-np "),
        (("--tf", "2.2", "--tensorboard", "/model/logs"), "--checkpoints"),
        (("--tf", "2.2", "--tensorboard", "../logs"), "--checkpoints"),
        ((*COMPOSE, "--nodes", "2", "--user", "7"), "--user 7: "),
        ((*MPIJOB, "--mount", "/usr:/data"), "/usr: "),
        ((*MPIJOB, "--checkpoints", "My_Claim"), "My_Claim: "),
        ((*MPIJOB, "--mount", "shm:/d"), "shm: "),
        ((*TFJOB, "--checkpoints", "code"), "code: "),
        ((*MPIJOB, "--env", "TOKEN"), "TOKEN: --env"),
        ((*MPIJOB, "--gpus", "device=0"), "--gpus device=0: "),
    ],
)
def test_bad_input_is_one_paragraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "a,b").mkdir()
    monkeypatch.chdir(tmp_path)
    selection = () if "--tf" in words else (PUSHED,)
    program = () if "--" in words else PROGRAM
    code, text = ran(tmp_path, *selection, *words, *program)
    assert code == 2
    if says:  # Typer's own have a usage before them
        assert says in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a b",), "'a b': no such image in the matrix"),
        (("train",), "The engine has no such image"),
        (("a:1", "--tf", "2.2"), "use only --cpu, --gpu and --mpi"),
        (("a:1", "--mpi", "mpich"), "--mpi 'mpich'"),
        (("a:1", "b:1"), "`run` takes one image, not 2"),
    ],
)
def test_what_names_no_image(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    code, text = ran(tmp_path, *words, *PROGRAM)
    assert (code, text.count("\n")) == (2, 0)
    assert says in text


@pytest.mark.parametrize(
    ("form", "option", "others"),
    [
        ("docker", "--nodes 2", "compose"),
        ("docker", "--ps 2", "compose"),
        ("compose", "--exec", "docker"),
        ("compose", "--port 80", "docker or devcontainer"),
        ("slurm", "--shm-size 2g", "docker"),
        ("slurm", "--user 0", "docker"),
        ("mpijob", "--user 7", "docker"),
        ("mpijob", "--ps 1", "compose or tfjob"),
        ("mpijob", "--tensorboard x", "docker"),
        ("tfjob", "-np 2", "docker"),
        ("devcontainer", "--nodes 2", "compose"),
        ("devcontainer", "--time-limit 1h", "docker"),
        ("devcontainer", "a program", "docker"),
    ],
)
def test_what_a_format_lacks_is_refused_with_those_that_have_it(
    tmp_path: Path, form: str, option: str, others: str
) -> None:
    words = option.split() if option.startswith("-") else []
    program = () if words and form == "devcontainer" else PROGRAM
    code, text = ran(tmp_path, PUSHED, "--format", form, *words, *program)
    assert (code, text.count("\n")) == (2, 0)
    assert text.startswith(f"--format {form} does not support {words[0] if words else option}. ")
    assert others in text


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
        (("team/train:7",), "team/train:7", None),
        (("team/train:7", "--gpu"), "team/train:7", "all"),
        (("a:1", "--gpus", "device=0,1"), "a:1", '"device=0,1"'),
    ],
)
def test_gpus_are_those_that_the_image_can_use(
    tmp_path: Path, words: tuple[str, ...], image: str, gpus: str | None
) -> None:
    found = _train(ran(tmp_path, *words, *PROGRAM)[1])
    assert found[-3:] == [image, "python", "train.py"]
    assert (found[found.index("--gpus") + 1] if "--gpus" in found else None) == gpus
    assert ("memlock=-1" in found) is (gpus is not None)
    assert ("IMGBUILD_GPU=require" in found) is (gpus is not None)
    assert ("IMGBUILD_GPU=off" in found) is ("none" in words)


def test_what_the_driver_compiles_outlives_the_container(tmp_path: Path) -> None:
    kernels = f"{tmp_path}/.cache/imgbuild/cuda:/cuda-cache"
    image = ("--tf", "2.12", "--gpu")
    for form in ("docker", "compose", "devcontainer"):
        program = () if form == "devcontainer" else PROGRAM
        text = ran(tmp_path, *image, "--format", form, *program)[1]
        assert kernels in text, form
        assert "CUDA_CACHE_PATH" in text, form
    assert (tmp_path / ".cache/imgbuild/cuda").is_dir(), "Docker would make it for root"
    own = ("--env", "CUDA_CACHE_PATH=/mine")
    for words in (("--tf", "2.2"), (*image, "--gpus", "none"), (*image, *own)):
        assert kernels not in ran(tmp_path, *words, *PROGRAM)[1], words


def test_tensorboard_gets_no_gpu(tmp_path: Path) -> None:
    image = ("--tf", "2.12", "--gpu", "--env", "IMGBUILD_GPU=require")
    board = ("--tensorboard", "/data", "--mount", "logs:/data")
    shown, *_ = docker_lines(ran(tmp_path, *image, *board, *PROGRAM)[1])
    assert "--detach" in shown
    assert {"IMGBUILD_GPU=off"} == {word for word in shown if word.startswith("IMGBUILD_GPU=")}
    assert not [word for word in shown if "--gpus" in word or "cuda-cache" in word]


def test_tensorboard_may_show_the_folder_above_a_mount(tmp_path: Path) -> None:
    words = ("--mount", "logs:/data/logs", "--tensorboard", "/data")
    assert "tensorboard --logdir /data " in printed(tmp_path, *words, *PROGRAM)


@pytest.mark.parametrize(
    "words",
    [
        ("--tf", "2.2", "python", "x.py"),
        ("2.2", "python", "x.py"),
        ("--gpu", "python", "x.py"),
        (PUSHED, "python", "x.py"),
    ],
)
def test_a_program_without_dashes_before_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, text = ran(tmp_path, *words)
    assert (code, text) == (2, "Write -- before the program: -- python x.py")


def test_ranks_have_two_spellings(tmp_path: Path) -> None:
    texts = {printed(tmp_path, name, "2", *PROGRAM) for name in ("-np", "--ranks")}
    assert ["mpirun -np 2 " in text for text in texts] == [True]


def test_shared_memory_grows_with_the_ranks(tmp_path: Path) -> None:
    for ranks, size in ((1, "1g"), (8, "1g"), (9, "1152m"), (16, "2g")):
        assert f"--shm-size {size} " in printed(tmp_path, "-np", str(ranks), *PROGRAM)
    assert "--shm-size 3g " in printed(tmp_path, "-np", "9", "--shm-size", "3g", *PROGRAM)


def test_what_is_after_the_dashes_is_the_program_s(tmp_path: Path) -> None:
    words = _train(printed(tmp_path, "--", "python", "a b.py", "--tf", "$HOME", "", "--help"))
    assert words[-5:] == ["a b.py", "--tf", "$HOME", "", "--help"]
    words = ["run", "--tf", "2.2", "--", "x", "--stack", "json", "--y", ""]
    assert own_words(words) == ["run", "--tf", "2.2"]


@pytest.mark.parametrize(
    ("selection", "is_noted"),
    [(("--tf", "2.2"), True), (("--tf", "2.18", "--gpu"), False), ((PUSHED, "--gpu"), False)],
)
def test_gpus_without_an_image_for_gpus_are_noted(
    tmp_path: Path, selection: tuple[str, ...], is_noted: bool
) -> None:
    words = ("--project", str(ROOT), "--code", str(tmp_path), *selection, "--gpus", "all")
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    result = invoke("run", *words, *PROGRAM, env={**ENVIRONMENT, **cache})
    assert result.exit_code == 0
    assert ("not known as an image for GPUs" in result.stderr) is is_noted
