"""The rules for lines of requirement files, in the package and in the images' program."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from imgbuild.locks.requirement_rules import (
    DIFFERS,
    OTHER_TENSORFLOW,
    PASSES,
    ImageFacts,
    judge_line,
    logical_lines,
    parse_constraints,
    repair_line,
)
from support.project_copy import ROOT
from support.requirement_cases import (
    CONSTRAINTS,
    DIFFERING,
    FULFILLED,
    PACKAGES,
    REFUSED,
    REPAIRED,
    UNCHANGED,
)

PROGRAM = ROOT / "images" / "files" / "pip"
PIP_IMAGE: Any = runpy.run_path(str(PROGRAM / "pip_image.py"))
#: The oldest Python of the images, if this machine has it, and this one.
PYTHONS = [sys.executable, *map(str, (Path.home() / ".pyenv/versions").glob("3.6.*/bin/python"))]
FACTS = ImageFacts(PACKAGES, parse_constraints(CONSTRAINTS), {"python_version": "3.6"})


def kept(line: str) -> str:
    meant, _ = repair_line(line)
    return judge_line(meant, FACTS).kept if meant else ""


@pytest.mark.parametrize("line", UNCHANGED)
def test_judge_line_passes_lines_that_fit(line: str) -> None:
    assert repair_line(line) == (line, "")
    assert judge_line(line, FACTS) == (PASSES, line, "")


@pytest.mark.parametrize("line", FULFILLED)
def test_judge_line_accepts_any_patch_release(line: str) -> None:
    verdict = judge_line(line, FACTS)
    assert (verdict.outcome, verdict.kept) == (PASSES, "")
    assert "2.2.3" in verdict.reason


@pytest.mark.parametrize("line", DIFFERING)
def test_judge_line_tells_what_the_image_has(line: str) -> None:
    verdict = judge_line(line, FACTS)
    assert (verdict.outcome, verdict.kept) == (DIFFERS, "")
    (name,) = re.findall(r"^\w+", line.lower())
    assert PACKAGES[name] in verdict.reason


@pytest.mark.parametrize("line", REFUSED)
def test_judge_line_refuses_another_tensorflow(line: str) -> None:
    verdict = judge_line(line, FACTS)
    assert (verdict.outcome, verdict.kept) == (OTHER_TENSORFLOW, "")
    assert "TensorFlow" in verdict.reason


@pytest.mark.parametrize(("line", "meant"), REPAIRED.items())
def test_repair_line_says_what_it_changed(line: str, meant: str) -> None:
    assert kept(line) == meant
    repaired, note = repair_line(line)
    verdict = judge_line(repaired, FACTS)
    assert line in note or verdict.reason


def test_judge_line_without_tensorflow() -> None:
    """An image without TensorFlow can get any."""
    line = "tensorflow==2.4.1"
    assert judge_line(line, ImageFacts({}, {})) == (PASSES, line, "")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_pip_image_reads_byte_order_marks(encoding: str) -> None:
    mark = "\ufeff" if encoding[-3:] in {"-le", "-be"} else ""
    content = f"{mark}# für\r\nnumpy \\\r\n >=1\r\n".encode(encoding)
    lines = [
        (number, " ".join(line.split()))
        for number, line in logical_lines(PIP_IMAGE["decode_text"](content))
    ]
    assert lines == [(3, "numpy >=1")]


def test_pip_image_refuses_other_encodings() -> None:
    with pytest.raises(ValueError, match="decode"):
        PIP_IMAGE["decode_text"]("# für\n".encode("latin-1"))


@pytest.mark.parametrize("python", PYTHONS)
def test_pip_image_judges_like_the_package(python: str, tmp_path: Path) -> None:
    """The program reads the same table from a file, with the image's Python and pip's packages."""
    lines = [*UNCHANGED, *FULFILLED, *DIFFERING, *REFUSED, *REPAIRED]
    text = "\n".join(lines).replace("pandas==1.1.5\n", "pandas \\\n==1.1.5\n", 1)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.txt").write_text(text, encoding="utf-16")
    (tmp_path / "requirements.txt").write_text("-r sub/more.txt\n-f sub\n", encoding="utf-8-sig")
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "import pip_image; from requirement_rules import ImageFacts, parse_constraints\n"
        "packages, constraints = json.loads(sys.argv[2])\n"
        "facts = ImageFacts(packages, parse_constraints(constraints), {'python_version': '3.6'})\n"
        "request = pip_image.Request(['-U', '-rrequirements.txt', 'numpy==1.1'], facts)\n"
        "print(json.dumps([getattr(request, one) for one in sys.argv[3:]]))"
    )
    values = [
        str(PROGRAM),
        json.dumps([PACKAGES, CONSTRAINTS]),
        "kept",
        "aside",
        "refused",
        "words",
    ]
    ran = subprocess.run(
        [python, "-B", "-c", program, *values], cwd=tmp_path, check=True, capture_output=True
    )
    found, aside, refused, words = json.loads(ran.stdout)
    expected = [kept(line) for line in lines]
    joined = "pandas  ==1.1.5"
    assert found == [
        *(joined if line == "pandas==1.1.5" else line for line in expected[:2]),
        *filter(None, expected[2:]),
        f"-f {tmp_path / 'sub'}",
    ]
    assert [line.split(": ")[1] for line in aside] == [*FULFILLED, *DIFFERING, "numpy==1.1"]
    assert [line.split(": ")[1] for line in refused] == [*REFUSED]
    assert words == ["-U"]
    assert f"more.txt:{len(UNCHANGED) + 2}: " in aside[0]


@pytest.mark.parametrize("path", ["/home/me/own", "/builds/own", "/bigcorp/own", "/citrus/own"])
def test_own_package_is_not_taken_from_the_index(path: str) -> None:
    """Anybody can have registered its name there."""
    line = f"own @ file://{path}"
    assert repair_line(line) == (line, "")


@pytest.mark.parametrize(
    ("asked", "allowed", "fits"),
    [
        ("!=1.15.*", ">=1.15,<1.17", True),
        (">2.0rc1", ">=1,<3", True),
        ("!=1.15.*,!=1.16.*", ">=1.15,<1.17", False),
        (">1.15,<1.16", ">=1.16", False),
    ],
)
def test_line_fits_if_a_version_is_admitted(asked: str, allowed: str, fits: bool) -> None:
    facts = ImageFacts({"six": "1.15.0"}, {"six": SpecifierSet(allowed)})
    assert (judge_line(f"six{asked}", facts).outcome == PASSES) is fits


def test_many_continued_lines_are_read_in_linear_time() -> None:
    """Reading took a minute for a file of a megabyte."""
    (line,) = logical_lines("aaaaaaaaaa\\\n" * 400_000)
    assert line[0] == 400_000


def _pip_image(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program for an image; its pip ends with 7 and says what it would install."""
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "import pip_image; from requirement_rules import ImageFacts, parse_constraints\n"
        "packages, constraints = json.loads(sys.argv[2])\n"
        "pip_image.image_facts = lambda: ImageFacts(packages, parse_constraints(constraints))\n"
        "pip_image.run_pip = lambda request: print(request.kept, request.words) or 7\n"
        "sys.exit(pip_image.main(sys.argv[3:]))"
    )
    values = (str(PROGRAM), json.dumps([PACKAGES, CONSTRAINTS]), "install", *words)
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return subprocess.run(
        [sys.executable, "-B", "-c", program, *values],
        cwd=folder,
        env=environment,
        text=True,
        check=False,
        capture_output=True,
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["pandas"], 7),
        (["-e", "."], 7),
        (["-e."], 7),
        (["--group=dev"], 7),
        (["numpy==1.16.6"], 0),
        (["--upgrade", "tensorflow==2.2.0"], 0),
        (["tensorflow==2.4.1"], 2),
    ],
)
def test_pip_image_starts_pip_if_anything_is_left(
    tmp_path: Path, words: list[str], code: int
) -> None:
    ran = _pip_image(tmp_path, *words)
    assert ran.returncode == code, ran.stderr


@pytest.mark.parametrize("twice", [False, True])
def test_pip_image_refuses_endless_inclusion(tmp_path: Path, *, twice: bool) -> None:
    for number in range(30):
        line = f"-r {number + 1}.txt\n"
        (tmp_path / f"{number}.txt").write_text(line * (2 if twice and number < 12 else 1))
    (tmp_path / "12.txt" if twice else tmp_path / "30.txt").write_text("pandas\n")
    ran = _pip_image(tmp_path, "-r", "0.txt")
    assert ran.returncode == 2
    assert "too many files include one another" in ran.stderr
