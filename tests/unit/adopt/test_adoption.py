"""The file with the decisions of `imgbuild adopt`."""

from pathlib import Path

import pytest

from imgbuild.adopt.adoption import FILE, Adoption, read_adoption, write_adoption
from imgbuild.adopt.choice import Decision
from imgbuild.adopt.repository import Evidence
from imgbuild.core.errors import InputError
from imgbuild.core.yaml_file import LARGEST

ADOPTION = Adoption(
    tag="adopted/churn:1",
    image="tf-1.10-cpu-debian",
    entry="src/train.py",
    arguments=("--data", "a 'quoted' \"name\" with $HOME"),
    python_path=("src", "."),
    date="2018-06-03",
    pip=("tqdm==4.23.4", "pandas>=0.23; python_version < '4'"),
    optional=("tqdm",),
    overrides=("opencv-python=opencv-python-headless",),
    apt=("libglib2.0-0",),
)
DECISIONS = (
    Decision("tensorflow", "1.10", "train.py uses tf.contrib", (Evidence("train.py", 3),)),
    Decision(
        "date", "2018-06-03", "last change\nof a file: # no key", against=("README says 2019",)
    ),
    Decision("tqdm", "added", "imported", (Evidence("train.py", 4),)),
)


def test_adoption_is_read_as_written(tmp_path: Path) -> None:
    write_adoption(tmp_path, ADOPTION, DECISIONS)
    assert read_adoption(tmp_path) == ADOPTION


def test_adoption_file_says_why(tmp_path: Path) -> None:
    text = write_adoption(tmp_path, ADOPTION, DECISIONS).read_text()
    for expected in ("train.py uses tf.contrib", "(train.py:3)", "README says 2019", "tqdm"):
        assert expected in text
    comments = [line for line in text.splitlines() if "# no key" in line]
    assert all(line.startswith("#") for line in comments)
    assert comments


def test_missing_file_is_no_adoption(tmp_path: Path) -> None:
    assert read_adoption(tmp_path) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("entry", "../train.py"),
        ("entry", "/etc/passwd"),
        ("python_path", "[../x]"),
        ("pip", "['x @ https://evil.invalid/x.whl']"),
        ("pip", "['-r other.txt']"),
        ("overrides", "[opencv-python]"),
        ("apt", "['-o Foo=bar']"),
        ("image", "Some Image"),
        ("tag", "evil tag"),
        ("unknown", "1"),
    ],
)
def test_wrong_values_are_refused_with_their_place(tmp_path: Path, key: str, value: str) -> None:
    lines = ["tag: adopted/x:1", "image: tf-1.10-cpu-debian", "entry: train.py"]
    lines = [line for line in lines if not line.startswith(f"{key}:")]
    (tmp_path / FILE).write_text("\n".join([*lines, f"{key}: {value}", ""]))
    with pytest.raises(InputError, match=rf"{FILE}:\d+:"):
        read_adoption(tmp_path)


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_only_regular_files_are_used(tmp_path: Path, kind: str) -> None:
    (tmp_path / "other").write_text("tag: adopted/x:1\n")
    if kind == "link":
        (tmp_path / FILE).symlink_to("other")
    else:
        (tmp_path / FILE).mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        read_adoption(tmp_path)
    with pytest.raises(InputError, match="not a regular file"):
        write_adoption(tmp_path, ADOPTION, ())


def test_large_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("#" * (LARGEST + 1))
    with pytest.raises(InputError, match="limit for this file"):
        write_adoption(tmp_path, ADOPTION, ())


def test_reasons_are_short(tmp_path: Path) -> None:
    decision = Decision("tqdm", "added", "x" * 10_000)
    text = write_adoption(tmp_path, ADOPTION, (decision,)).read_text()
    assert max(map(len, text.splitlines())) < 500
