"""A test runs every block of commands of the documentation, or the block is marked as an example.

A block that begins with "```console" is typed by the test that is named here; one that begins with
"```console example" has other people's names, or needs what no test has.
"""

import re

import pytest

from support.generated_tables import PAGES, page_name
from support.project_copy import ROOT

#: Which test of tests/e2e types the unmarked blocks of a page, or of a section of it.
TYPED_BY = {
    "README.md": "test_readme.py",
    "docs/adopt.md": "test_adopt.py",
    "docs/own-program.md": "test_own_program.py",
    "docs/tutorial.md": "test_tutorial.py",
    "docs/use-image.md": "test_published_use.py",
    "docs/distributed.md#Parameter servers": "test_examples.py",
    "docs/migrating.md#From TensorFlow 2.15 and Horovod to 2.16 and newer": "test_examples.py",
    "docs/frameworks.md#ONNX": "test_examples.py",
    "docs/tensorboard.md#In a notebook": "test_examples.py",
    "docs/tensorboard.md#JupyterLab": "test_notebook.py",
}
_BLOCK = re.compile(r"^(?:## (?P<title>.+)|```(?:console|sh)(?P<mark>[^\n]*)$)", re.MULTILINE)


def unmarked(page: str, text: str) -> set[str]:
    """Return where a page has blocks of commands without a mark, as ``TYPED_BY`` names places."""
    title, found = "", set[str]()
    for block in _BLOCK.finditer(text):
        if block["title"]:
            title = block["title"]
        elif block["mark"] != " example":
            assert block["mark"] == "", f"{page}: a block has the unknown mark {block['mark']!r}"
            found.add(page if page in TYPED_BY else f"{page}#{title}")
    return found


def test_every_block_is_typed_by_a_test_or_marked() -> None:
    pages = {page_name(page): page.read_text("utf-8") for page in PAGES}
    found = set[str]().union(*(unmarked(page, text) for page, text in pages.items()))
    assert found == {*TYPED_BY}


@pytest.mark.parametrize(("place", "test"), TYPED_BY.items())
def test_the_test_reads_that_page(place: str, test: str) -> None:
    text = (ROOT / "tests" / "e2e" / test).read_text(encoding="utf-8")
    page, _, title = place.partition("#")
    assert f'"{page.rpartition("/")[2]}"' in text
    assert not title or f'"{title}"' in text


def test_an_unmarked_block_is_found() -> None:
    page = "# P\n```console example\n$ a\n```\n## T\n```console\n$ b\n```\n"
    assert unmarked("docs/new.md", page) == {"docs/new.md#T"}
    with pytest.raises(AssertionError, match="unknown mark ' sample'"):
        unmarked("docs/new.md", page.replace("example", "sample"))


def test_no_page_pipes_text_into_a_shell() -> None:
    """Whatever makes the text would decide what runs."""
    into_shell = re.compile(r"\|\s*(sudo\s+)?(\S*/)?(ba|da|z)?sh\b|\beval\b|\b(ba|da|z)?sh\s+<\(")
    block = re.compile(r"^```(?:console|sh)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for page in PAGES:
        found = block.findall(page.read_text("utf-8"))
        assert not [text for text in found if into_shell.search(text)], page
