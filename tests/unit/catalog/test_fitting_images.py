"""``imgbuild list`` of what fits a GPU, a driver, a Python, packages, or this machine."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from imgbuild.catalog import choice
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.matrix.gpus import Gpu
from support.project_copy import ROOT, command

V100 = ("--gpu-model", "Tesla V100")


def run(*words: str) -> str:
    return command("list", *words, "--project", str(ROOT)).stdout


def found(*words: str) -> dict[str, Any]:
    answer = json.loads(run(*words, "--json"))
    why = {name: one["why"] for one in answer["refused"] for name in one["images"]}
    return {**answer, "run": {one["name"]: one for one in answer["run"]}, "why": why}


@pytest.mark.parametrize(
    ("driver", "too_old"),
    [
        ("450.80.02", {}),
        ("450.80.01", {"tf-2.12-gpu-debian": "450.80.02"}),
        ("400.1", {"tf-2.12-gpu-debian": "450.80.02", "tf-2.2-gpu-ubuntu": "418.39"}),
    ],
)
def test_a_gpu_behind_a_driver(driver: str, too_old: dict[str, str]) -> None:
    answer = found(*V100, "--driver", driver)
    gpu = {"tf-1.10-gpu-ubuntu", "tf-2.2-gpu-ubuntu", "tf-2.12-gpu-debian"}
    assert gpu & {*answer["run"]} == gpu - {*too_old}
    for name, needed in too_old.items():
        assert re.search(rf"driver {driver} is too old for .*needs {needed}", answer["why"][name])
    assert answer["run"]["tf-1.10-gpu-ubuntu"]["gpu"] == "native kernels"
    assert answer["why"]["tf-2.2-cpu-debian"].startswith("CPU images, which would not")
    assert not {*answer["run"]} & {*answer["why"]}, "each image is in one of them"


def test_a_gpu_alone_and_a_driver_alone() -> None:
    refusal = found("--gpu-model", "8.0")["why"]["tf-2.2-gpu-ubuntu"]
    assert refusal == "CUDA 10.1 supports no capability above 7.5"
    assert found("--gpu-model", "H100")["run"]["tf-2.12-gpu-debian"]["gpu"] == "PTX only"
    assert "tf-2.12-gpu-debian" in found("--driver", "450.80.02")["run"]


@pytest.mark.parametrize(
    ("words", "oldest", "without"),
    [
        (("--gpu-model", "A100", "--tf", "1.15"), "tf-2.5-gpu-debian", "tf-1.15-cpu-debian"),
        (("--gpu-model", "3.7", "--tf", "2.21"), "tf-1.10-gpu-ubuntu", "tf-2.21-cpu-debian"),
        (("--gpu-model", "3.0", "--tf", "2.2"), None, "tf-2.2-cpu-debian"),
    ],
)
def test_a_gpu_that_the_version_does_not_support(
    words: tuple[str, ...], oldest: str | None, without: str
) -> None:
    with pytest.raises(CheckFailedError) as caught:
        run(*words)
    offered = re.findall(r"imgbuild build (\S+?)`", str(caught.value))
    assert offered == ([oldest, without] if oldest else [without])


#: As nvidia-smi and people name them.
ARM = ["NVIDIA GH200 480GB", "gb200", "NVIDIA GB10", "DGX Spark", "Jetson AGX Orin"]


@pytest.mark.parametrize("model", ARM)
def test_a_gpu_of_a_machine_with_an_arm_processor(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its capability has code in an image, but no GPU image is for its processor."""
    with pytest.raises(CheckFailedError, match=r"only for x86-64, because .* arm64 have no CUDA"):
        run("--gpu-model", model)
    monkeypatch.setattr(choice, "find_gpus", lambda: ((Gpu(model, "580.82", "9.0"),), ""))
    with pytest.raises(CheckFailedError, match="ARM processors"):
        run("--here")


def test_a_word_with_the_name_of_such_a_gpu_in_it_is_none() -> None:
    for word in ("monitoring", "author"):
        with pytest.raises(InputError, match=word):
            run(word)
        with pytest.raises(InputError, match="does not name one known GPU"):
            run("--gpu-model", word)


def test_the_selection_narrows() -> None:
    answer = found(*V100, "--cpu", "--tf", "2.2")
    assert {*answer["run"]} == {
        *("tf-2.2-cpu-ubuntu", "tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi")
    }
    assert answer["why"] == {}
    assert {*found(*V100, "TensorFlow 2.2 GPU")["run"]} == {"tf-2.2-gpu-ubuntu"}


FROZEN = """\
# all that was in somebody's environment of 2019
absl-py==0.7.1
h5py==2.9.0
numpy==1.16.2
requests==2.21.0
tensorboard==1.13.1
tensorflow==1.13.1
tqdm==4.31.1
"""


def test_tensorflow_decides_and_other_lines_differ(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(FROZEN)
    answer = found("--requirements", str(file))
    assert {*answer["run"]} == {f"tf-1.13-{kind}" for kind in IMAGES_OF_1_13}
    assert answer["why"]["tf-1.14-cpu-debian"] == "requirements.txt:7 requires tensorflow==1.13.1"
    debian = answer["run"]["tf-1.13-cpu-debian"]
    assert answer["newest"] == "tf-1.13-cpu-debian"
    assert debian["would_be_added"] == ["requests", "tqdm"]
    differing = {one["place"]: one["line"] for one in debian["differs"]}
    assert differing == {"requirements.txt:3": "h5py==2.9.0", "requirements.txt:4": "numpy==1.16.2"}
    command = f"imgbuild extend tf-1.13-cpu-debian --requirements {file} --keep-image -t "
    assert debian["extend"].startswith(command)
    text = run("--requirements", str(file))
    assert "\ntf-1.13-cpu-debian: 2 lines differ\n" in text
    assert f"\n  {command}" in text


IMAGES_OF_1_13 = ("cpu-ubuntu", "gpu-ubuntu", "cpu-debian")


@pytest.mark.parametrize(
    ("text", "fits", "others"),
    [
        ("tensorflow<2.6\n", "2.5-cpu-debian", "2.6-cpu-debian"),
        ("tensorflow>=2.3,<3\n", "2.3-cpu-debian", "2.2-cpu-debian"),
        ("tensorflow~=2.2.0\n", "2.2-cpu-debian", "2.3-cpu-debian"),
        ("tensorflow_gpu == 2.1.0\n", "2.1-gpu-ubuntu", "2.2-gpu-ubuntu"),
        ("tensorflow==2.2.0; sys_platform == 'linux'\ntensorflow==9; sys_platform == 'darwin'\n",
         "2.2-cpu-debian", "2.1-cpu-debian"),
        ("tensorflow-cpu==2.5.*\nintel-tensorflow\n", "2.5-cpu-debian", "2.4-cpu-debian"),
        ("dependencies:\n- python=3.8\n- tensorflow=2.4\n", "2.4-cpu-debian", "2.2-cpu-debian"),
        ("python=3.6.10=hcf32534_1\ntensorflow=1.15.0=mkl_py36h4920b83_0\n",
         "1.15-cpu-debian", "1.14-cpu-debian"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_as_people_have_them(
    tmp_path: Path, text: str, fits: str, others: str, encoding: str
) -> None:
    (tmp_path / "file").write_text(text, encoding=encoding)
    answer = found("--requirements", str(tmp_path / "file"), "--tf", others[:4].rstrip("-"),
                   "--tf", fits[:4].rstrip("-"))  # fmt: skip
    assert f"tf-{fits}" in answer["run"]
    assert f"tf-{others}" in answer["why"]


def test_a_file_without_tensorflow_leads_to_the_fewest_differing_lines(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("numpy==1.18.5\nh5py==2.10.0\n")
    answer = found("--requirements", str(file))
    assert answer["why"] == {}
    assert answer["run"][answer["newest"]]["differs"] == []
    assert answer["run"]["tf-2.21-cpu-debian"]["differs"] != []


def test_tensorflow_for_gpus_leads_to_an_image_for_gpus(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("tensorflow-gpu==2.2.0\n")
    assert found("--requirements", str(file))["newest"] == "tf-2.2-gpu-ubuntu"


def test_included_files_are_read_and_other_options_are_not(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("tensorflow==2.2.*\n-r requirements.txt\n")
    file = tmp_path / "requirements.txt"
    (tmp_path / "bounds.txt").write_text("lazy<1\n")
    file.write_text("--pre\nPandas==1.1.5 \\\n    --hash=sha256:00\n-c bounds.txt\n")
    assert found("--requirements", str(file))["run"]["tf-2.2-cpu-debian"]["would_be_added"] == [
        "pandas"
    ]
    file.write_text("-r base.txt\n")
    with pytest.raises(InputError, match=r"base\.txt:2: requirements\.txt includes itself"):
        run("--requirements", str(file))


def test_another_tools_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("[project]\nname = 'train'\n")
    with pytest.raises(InputError, match="uv export"):
        run("--requirements", str(file))


def test_python_and_readable_groups() -> None:
    text = run("--python", "3.6")
    assert re.search(r"\ntf-2\.2-cpu-debian +3\.6\.15 ", text)
    assert "their Python is not ==3.6.*; they have 3.8.18, 3.11.2\n" in text
    text = run("--gpu-model", "RTX 5090")
    assert "gpu-ubuntu 2.1 to 2.3" in text
    assert all(fact in text for fact in ("PTX only", "minutes"))
    assert max(map(len, text.splitlines())) <= 80


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[tuple[list[Gpu], str]] = [([], ""), ([], "no driver"), ([], "")]
    listed[2] = ([Gpu("NVIDIA A100-SXM4-40GB", "470.1"), Gpu("T4", "470.1", "7.5")] * 2, "")
    monkeypatch.setattr(choice, "find_gpus", lambda: listed.pop(0))
    answer = found("--here")
    assert "tf-2.2-cpu-debian" in answer["run"]
    newest = max(map(Version, (one["tensorflow"] for one in answer["run"].values())))
    taken = answer["run"][answer["newest"]]
    assert (Version(taken["tensorflow"]), taken["variant"]) == (newest, "cpu")
    assert answer["why"]["tf-2.2-gpu-ubuntu"].endswith("GPU images: this machine has no nvidia-smi")
    assert found("--here")["why"]["tf-2.2-gpu-ubuntu"].endswith("GPU images: no driver")
    answer = found("--here")
    assert answer["why"]["tf-2.2-gpu-ubuntu"] == "CUDA 10.1 supports no capability above 7.5"
    assert answer["run"]["tf-2.12-gpu-debian"]["gpu"] == "native kernels"


def test_what_no_question_is(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("numpy\n\n./wheel.whl\n")
    long = tmp_path / "long.txt"
    long.write_text(f"numpy=={'9' * 5000}\n")
    for words, expected in (
        ((*V100, "--here"), "--gpu-model and --driver"),
        (("--here", "--wide"), "--wide"),
        (("--gpu", "A100"), "--gpu-model 'A100'"),
        (("Tesla V100",), "--gpu-model 'Tesla V100'"),
        (("--gpu-model", "RTX 2080x"), "GeForce RTX 2080, "),
        *((("--driver", text), "450.80.02") for text in ("new", "\u0664\u0665\u0660", "9" * 5000)),
        (("--gpu-model", "\u0667.\u0660"), "7.0."),
        *((("--python", text), "3.6") for text in ("three", "9" * 5000)),
        (("--requirements", str(long)), f"{long}:1: "),
        (("--requirements", str(file)), f"{file}:3: './wheel.whl'"),
        (("--requirements", str(tmp_path)), "Is a directory"),
    ):
        with pytest.raises(InputError) as caught:
            run(*words)
        assert expected in str(caught.value)
