"""The documentation agrees with the program: tables, command lines, paths, settings.

``make derived`` writes the generated tables again; ``make site`` checks links and anchors.
"""

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import DESCRIPTIONS, NAMESPACE, PIN, pin_labels
from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rule_model import Part
from imgbuild.matrix.rules import COMPARISONS
from imgbuild.publish.record import Record
from imgbuild.suites.catalog import read_suites
from support.generated_tables import TABLES, blocks, click_commands, page_name, with_tables
from support.project_copy import ROOT

FOLDERS = ("docs", "examples", "tests/image", "tests/standin", "benchmarks")
PAGES = [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]
#: The changelog names what went.
CURRENT = [path for path in PAGES if path.name != "CHANGELOG.md"]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^```[^`\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_COMMAND = re.compile(
    r"(?<![\w./-])(?<!-C )(?:\S*/)?imgbuild ((?:--[\w-]+ \S+ )*)([a-z]+)(?![\w/:.-])([^|;&#\n]*)"
)
_PATH = re.compile(
    r"(?:build|tests|docs|images|benchmarks|examples|\.github)/[a-z0-9_./-]+|[a-z]+/[a-z]+[a-z_]*\.py"
)


def spans(text: str) -> list[str]:
    """Return what stands between backticks, outside fences."""
    return [span for _, span in _SPAN.findall(_FENCE.sub("", text))]


def code_of(text: str) -> list[str]:
    """Return a page's code: the lines of its fences, and its spans on one line each."""
    lines = [line for fence in _FENCE.findall(text) for line in fence.splitlines()]
    return lines + [" ".join(span.split()) for span in spans(text)]


def wrong_commands(code: list[str]) -> list[str]:
    """Return the command lines that name a command or an option that does not exist."""
    known = click_commands()
    wrong = []
    for line in code:
        for _, command, words in _COMMAND.findall(line):
            part = words.split()[:1]
            if f"{command} {' '.join(part)}" in known:
                command = f"{command} {part[0]}"  # noqa: PLW2901 - with the command of its group
            if command not in known:
                wrong.append(f"{command}: {line}")
                continue
            have = {o for p in known[command].params for o in (*p.opts, *p.secondary_opts)}
            own = words.partition(" -- ")[0]  # what follows is of the program that `run` starts
            used = re.findall(r"(?<!\S)(--[a-z][a-z-]*)", own)
            wrong += [f"{command} {one}: {line}" for one in used if one not in {*have, "--help"}]
    return wrong


@pytest.mark.parametrize("name", sorted(click_commands()))
def test_help_has_an_example_with_options_that_exist(name: str) -> None:
    command = click_commands()[name]
    if not getattr(command, "commands", None):  # no group of others
        (example,) = re.findall(r"^Example: (.+)", command.help, re.MULTILINE)
        assert example.startswith(f"imgbuild {name}")
        assert wrong_commands([example]) == []


def first_column(text: str, heading: str) -> set[str]:
    """Return the code in the first cells of the first table below a heading."""
    section = text.split(f"\n{heading}\n")[1].partition("\n|")[2].partition("\n\n")[0]
    return {one for row in section.splitlines()[1:] for one in spans(row.split("|")[1])}


@pytest.mark.parametrize(
    "path", [p for p in PAGES if any(blocks(p.read_text("utf-8")))], ids=page_name
)
def test_generated_tables(path: Path, matrix: Matrix) -> None:
    text = path.read_text(encoding="utf-8")
    written = with_tables(text, matrix)
    if os.environ.get("IMGBUILD_WRITE_DOCS"):
        path.write_text(written, encoding="utf-8")
    else:
        assert written == text, (
            f"The tables of {page_name(path)} are out of date: `make derived` writes them"
        )


def test_every_table_is_on_a_page() -> None:
    assert {b for p in PAGES for b in blocks(p.read_text(encoding="utf-8"))} == set(TABLES)


@pytest.mark.parametrize("path", CURRENT, ids=page_name)
def test_command_lines_and_make_targets_exist(path: Path) -> None:
    code = code_of(path.read_text(encoding="utf-8"))
    assert wrong_commands(code) == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = [t for line in code for t in re.findall(r"^(?:\$ )?make (?:-C \S+ )?([a-z-]+)", line)]
    assert set(named) <= set(targets)


@pytest.mark.parametrize("path", CURRENT, ids=page_name)
def test_paths_exist(path: Path) -> None:
    named = [span for span in spans(path.read_text(encoding="utf-8")) if _PATH.fullmatch(span)]
    folders = (ROOT, ROOT / "build" / "imgbuild", ROOT / "tests" / "unit", path.parent)
    assert [n for n in named if not any((folder / n).exists() for folder in folders)] == []


def test_index_lists_the_pages_of_the_site() -> None:
    """The lists are for readers, a ``toctree`` for the site; they have the same pages."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!site:)([^)#]+)\.md[^)]*\)", text)
    entries = [line for tree in _FENCE.findall(text) for line in tree.splitlines()]
    pages = [re.sub(r".*<(.+)>", r"\1", line) for line in entries if not line.startswith(":")]
    assert len(pages) == len({*pages})
    assert {*links} == {*pages}


def test_the_code_names_pages_that_exist() -> None:
    files = [*(ROOT / "build").rglob("*.py"), *(ROOT / ".github").rglob("*.yml")]
    files += [*(ROOT / "examples").rglob("*"), *(ROOT / "images" / "templates").rglob("*.j2")]
    files += [ROOT / "matrix.yaml", ROOT / "Makefile"]
    texts = [file.read_text("utf-8", "replace") for file in files if file.is_file()]
    named = {name for text in texts for name in re.findall(r"docs/[a-z-]+\.md", text)}
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_exit_codes_records_and_checks_in_the_reference() -> None:
    rows = REFERENCE.split("## Exit codes")[1].split("\n\n")[1]
    codes = {int(code) for code in re.findall(r"^\| (\d+)", rows, re.MULTILINE)}
    kinds = (ImgbuildError, CheckFailedError, InputError, MachineError)
    assert {kind.exit_code for kind in kinds} <= codes
    assert first_column(REFERENCE, "### Records") == {
        "schema",
        "suites",
        *(f.name for f in fields(Record)),
    }
    assert {*get_args(Part)} <= {*spans(REFERENCE)}
    assert [check for check in COMPARISONS if f"| `{check}` |" not in REFERENCE] == []
    block = REFERENCE.split("### Tags of the matrix\n\n```yaml\n")[1].partition("```")[0]
    assert block in (ROOT / "matrix.yaml").read_text(encoding="utf-8")


def test_every_pin_in_which_the_stacks_differ_has_its_reason(images: dict[str, Image]) -> None:
    text = (ROOT / "docs" / "documented-versions.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Why `debian` has other versions\n")
    explained = {*re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)}
    differ = set()
    for image in (image for image in images.values() if image.stack == "debian"):
        other = images.get(f"tf-{image.minor}-cpu-ubuntu", image)
        here, there = image.keys, other.keys
        differ |= {one for one in {*here, *there} if here.get(one) != there.get(one)}
    assert explained == differ


#: The pip lists of azureml/train/estimator/scenarios/tensorflow-*.yml, azureml-train-core 1.20.0.
DOCUMENTED = ("tensorflow", "horovod", "azureml-defaults", "azureml-dataset-runtime", "cmake")


def test_a_documented_package_is_in_the_images_or_said_to_be_left_out(
    images: dict[str, Image], project: Project
) -> None:
    image = images["tf-2.0-cpu-ubuntu"]
    there = {*image.keys, *read_lock(project.locks / image.lock_name).versions}
    text = (ROOT / "docs" / "contents.md").read_text(encoding="utf-8")
    left_out = " ".join(re.findall(r"^(\| `.*) \| left out; ", text, re.MULTILINE))
    assert {one for one in DOCUMENTED if f"`{one}`" not in left_out} == {*DOCUMENTED} & there


def test_every_label_is_described(images: dict[str, Image]) -> None:
    labels = {label for image in images.values() for label in pin_labels(image)}
    own = {one for one in labels if one.startswith(f"{NAMESPACE}.") and not one.startswith(PIN)}
    assert own <= DESCRIPTIONS.keys()


def test_every_suite_is_described() -> None:
    page = (ROOT / "tests" / "image" / "README.md").read_text(encoding="utf-8")
    suites = (one.name for one in read_suites(ROOT / "tests" / "image"))
    assert [name for name in suites if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize(
    ("text", "finds"),
    [
        ("`imgbuild bild --tf 2.2`", "bild"),
        ("```console\n$ .venv/bin/imgbuild build --nothing DIR\n```\n", "build --nothing"),
        ("`imgbuild --settings FILE build\n--wrong`", "build --wrong"),
    ],
)
def test_a_wrong_command_line_is_found(text: str, finds: str) -> None:
    (wrong,) = wrong_commands(code_of(text))
    assert wrong.startswith(f"{finds}:")


def test_evidence_and_the_matrix_agree_on_what_ran_on_a_gpu(matrix: Matrix) -> None:
    evidence = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    ran = {image.name for image in all_images(matrix) if image.ran_on}
    assert first_column(evidence, "## On a GPU") == ran
    assert len(ran) == 3, "correct the number in docs/gpus.md and docs/evidence.md"
