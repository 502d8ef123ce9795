"""What `imgbuild extend` is asked for: files and options, and what is refused of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.files import sha256
from imgbuild.extend.base_image import BaseImage
from imgbuild.extend.conda_file import CondaPackages
from imgbuild.extend.extension import parse_extension, read_extension, requested_lines
from imgbuild.extend.requirement_files import judge_lines, wheel_paths
from imgbuild.matrix.selection import Selection

BASE = BaseImage("me/base:1", "me/base:1", "3.6.15", "2.36", "debian-12", {}, ())
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return to


def wanted(folder: Path, **values: object) -> tuple[str, ...]:
    """Return what these options ask pip for."""
    lines = requested_lines(parse_extension(values), folder, CondaPackages())
    return judge_lines(lines, BASE, folder, lambda _: None)


def test_a_file_says_what_options_say(write: Write) -> None:
    values: dict[str, Any] = {
        "tag": "me/train:1",
        "pip": ["keras==2.3.1", "pandas>=1,<2"],
        "requirements": ["requirements.txt"],
        "conda_file": "environment.yml",
        "apt": ["libsndfile1", "git=1:2.39.*"],
        "env": {"NCCL_DEBUG": "INFO", "WORDS": 'a "b" $c'},
        "copy": ["src:/opt/app", "main.py:/opt/"],
        "user": "1000:1000",
    }
    path = write("train.yaml", json.dumps({**values, "tf": 2.2, "gpu": True}))  # JSON is YAML
    for name in ("requirements.txt", "environment.yml", "main.py"):
        write(name, "")
    (path.parent / "src").mkdir()
    found = read_extension(path)
    assert found.model_copy(update={"tf": None, "gpu": False}) == parse_extension(values)
    assert found.selection == Selection(("2.2",), gpu=True)


@pytest.mark.parametrize(
    ("line", "place", "says"),
    [
        ("pips: [keras]", "1:1", "unknown key 'pips'; allowed: apt, base"),
        ("as_documented: true", "1:1", "the key 'as_documented' was removed"),
        ("pip: ['keras @ https://x.example/k.whl']", "1:7", "cannot be locked by hash"),
        ("pip: [-e .]", "1:7", "is not a requirement"),
        ("apt: ['x; rm -rf /']", "1:7", "a package of the system's archive"),
        ('env: {A: "b\\nUSER 0"}', "1:7", "no line ends"),
        ("env: {A B: c}", "1:7", "a variable's name"),
        ("env: {DATA: 'https://ann:secret@x.example/'}", "1:7", "an address with a login"),
        ("copy: [../x:/opt]", "1:8", "SOURCE:TARGET"),
        ("copy: [/etc/passwd:/opt]", "1:8", "SOURCE:TARGET"),
        ("copy: [a/../../x:/opt]", "1:8", "SOURCE:TARGET"),
        ("copy: ['src:/opt/$HOME']", "1:8", "SOURCE:TARGET"),
        ("copy: [src:opt]", "1:8", "SOURCE:TARGET"),
        ("user: 'root; id'", "1:1", "a user"),
        ("tag: Me/Train", "1:1", "the name of an image with its tag"),
        ("base: 'x:1 AS y'", "1:1", "an image by tag or digest"),
        ("gpu: perhaps", "1:1", "true or false"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    write: Write, line: str, place: str, says: str
) -> None:
    with pytest.raises(InputError) as error:
        read_extension(write("train.yaml", f"{line}\n"))
    assert f"train.yaml:{place}: " in str(error.value)
    assert says in str(error.value)
    assert "secret" not in str(error.value)


def test_files_that_are_not_there_are_named_with_their_lines(write: Write) -> None:
    text = "tf: 2.2\ncopy: [app:/opt/app]\nrequirements: [none.txt]\nconda_file: none.yml\n"
    with pytest.raises(InputError) as error:
        read_extension(write("train.yaml", text))
    for place, name in (("2:8", "app"), ("3:16", "none.txt"), ("4:1", "none.yml")):
        assert f"train.yaml:{place}: {name!r} does not exist" in str(error.value)


def test_a_wrong_option_is_named() -> None:
    name = f"h.example:5000/{'x' * 240}"  # 255 characters
    assert parse_extension({"tag": f"{name}:1", "base": f"{name}:1@sha256:{'0' * 64}"})
    for tag in ("x", f"{name}x:1", "x:" + "1" * 129):
        with pytest.raises(InputError, match=r"^--tag: .* is not the name of an image"):
            parse_extension({"tag": tag})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("keras\n--extra-index-url https://x.example\n", "requirements.txt:2: '--extra-index-url"),
        ("-i https://me:secret@x.example\n", "the mirror `python-index` in the settings"),
        (f"a; {'(' * 900}os_name=='b'{')' * 900}\n", 'requirements.txt:1: "a; ((('),
        (f"tensorflow=={'1' * 5000}\n", "requirements.txt:1: 'tensorflow==111"),
        ("keras==1 --hash=sha256:00\n", "requirements.txt:1: 'keras==1 --hash"),
        ("-e .\n", "requirements.txt:1: '-e .' is not a requirement"),
        ("-e .\n", "build a wheel, `pip wheel --no-deps -w dist .`, and write its path"),
        ("./own\n", "`pip wheel --no-deps -w dist ./own`"),
        ("own @ git+https://x.example/own\n", "-w dist git+https://x.example/own`"),
        ("git+https://me:secret@x.example/own\n", "-w dist git+https://x.example/own`"),
        ("-r https://x.example/r.txt\n", "leave this line out"),
        ("none-1-py3-none-any.whl\n", "none-1-py3-none-any.whl: no file below {}"),
        ("../a-1-py3-none-any.whl\n", "../a-1-py3-none-any.whl: no file below {}"),
        ("odd.whl\n", "Invalid wheel filename"),
        ("a\n-r requirements.txt\n", "requirements.txt:2: requirements.txt includes itself"),
        ("a\n-r none.txt\n", "requirements.txt:2: {}/none.txt: No such file"),
        ("-r loop.txt\n", "loop.txt: Too many levels of symbolic links"),
        ("-r \0.txt\n", "requirements.txt:1: '-r \\x00.txt' is not a requirement"),
    ],
)
def test_a_requirement_that_cannot_be_locked(
    write: Write, tmp_path: Path, text: str, says: str
) -> None:
    write("requirements.txt", text)
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    for name in ("odd.whl", "../a-1-py3-none-any.whl"):
        write(name, "")
    with pytest.raises(InputError) as error:
        wanted(tmp_path, requirements=["requirements.txt"])
    assert says.replace("{}", str(tmp_path)) in str(error.value)
    assert "secret" not in str(error.value)


def test_requirements_of_the_files_that_people_have(write: Write, tmp_path: Path) -> None:
    """As pip-compile and `pip freeze` write them, with hashes, constraints, and wheels by path."""
    (tmp_path / "sub").mkdir()
    wheel, digests = "own-1.0-py3-none-any.whl", [f"--hash=sha256:{one * 64}" for one in "ab"]
    write(f"sub/{wheel}", "content")
    write("sub/held.txt", "# ours \\\nnumpy<2\n-c deeper.txt\n")
    write("sub/deeper.txt", "-r deepest.txt")
    write("sub/deepest.txt", "pandas<2 \\\n")
    write("sub/more.txt", f"--constraint held.txt\n./{wheel}\n\nscipy >= 1  # ours\n")
    write(
        "requirements.txt",
        "# all\n--require-hashes\n-r sub/more.txt\n"
        f"keras==2.3.1 ; python_version < '4' \\\n    {digests[0]} "
        f"\\\n    {digests[1]}\n    # via us\n",
    )
    found = wanted(tmp_path, requirements=["requirements.txt"], pip=[f"sub/{wheel}"])
    assert found == (
        f"sub/{wheel} --hash=sha256:{sha256(b'content')}",
        *("-c numpy<2", "-c pandas<2", "scipy >= 1"),
        f"keras==2.3.1 ; python_version < '4' {' '.join(digests)}",
    )
    assert wheel_paths(found) == [f"sub/{wheel}"]
