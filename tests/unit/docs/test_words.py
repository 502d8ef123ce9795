"""Documentation, help and messages are plain English: words that a native writer would not use.

Generated tables are left out, since they have the words of the program and the matrix.
"""

import ast
import re
from pathlib import Path

import pytest
from conftest import ROOT
from generated_tables import PAGES, page_name

PACKAGE = ROOT / "build" / "imgbuild"
HELP = ROOT / "tests" / "unit" / "golden" / "help"
#: What is not written, as a regular expression of prose, and what is written instead.
WORDS = {
    r"\bserv(?:e|es|ed|ing)\b": "support, work with, listen, apply",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"(?<!on )\bdemand(?:s|ed|ing)?\b": "require, need",
    r"\b(?:go|goes|going|went|gone) on\b": "resume, continue, happen",
    r"\bnone (?:has|have)\b": "no … has yet",
    r"\b(?:any more|all the same)\b": "no longer, anyway",
    r"\bfor ever\b": "forever",
    r",? too(?=[.;:,)]|$)": "also, earlier in the sentence",
    r"(?:^|[.!] )What\b(?![^.]*\?)": "the noun itself",
    r"\bone's own\b": "your own, custom",
    r"\b(?:those|that) of\b": "the noun itself",
    r"\bas (?:mighty|good) as\b": "equivalent to",
    r"\bspeaks? for\b": "apply to, show",
    r"\bwhom\b": "who, which user",
    r"\bof (?:its|their|his) kind\b": "similar, the only one",
    r"\bwant of\b": "lack of",
    r"\bleave[s]? \S+ away\b": "omit, leave out",
    r"\bsuch as by\b": "for example with",
    r"(?<!by )\bhand(?:s|ed)? on\b": "pass on",
    r"\bcan be had\b|\bbe had\b": "be available",
}
#: Only the evidence says what was not tried; other pages link to it.
UNTRIED = r"\b(?:not|never|nobody has|n't been) (?:yet )?(?:tried|tested|run on)\b|\buntested\b"
EVIDENCE = {"README.md", "docs/evidence.md"}
_GENERATED = re.compile(
    r"<!-- (?:generated|table|images): \w+ -->.*?<!-- (?:images: )?end -->", re.DOTALL
)
_CODE = re.compile(r"^ *```.*?^ *```$|(`+)(?!`).+?(?<!`)\1(?!`)", re.MULTILINE | re.DOTALL)


def prose(text: str) -> list[str]:
    """Return the paragraphs, list items and cells of a page, each on one line, without code."""
    text = _CODE.sub("`code`", _GENERATED.sub("", text))
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    parts = re.split(r"\n\s*\n|\n(?= *(?:[-*|]|\d+\.) ?)|(?<!^) \| ", text)
    return [" ".join(part.strip("|# ").split()) for part in parts if part]


def bad_words(text: str, words: dict[str, str]) -> list[str]:
    """Return where a page has such words, with what to write."""
    return [
        f"{found[0]!r} in {part[max(0, found.start() - 40) : found.end() + 20]!r}: {better}"
        for part in prose(text)
        for bad, better in words.items()
        for found in re.finditer(bad, part)
    ]


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_words(path: Path) -> None:
    words = WORDS if page_name(path) in EVIDENCE else {**WORDS, UNTRIED: "a link to evidence.md"}
    assert bad_words(path.read_text(encoding="utf-8"), words) == []


def messages(module: str) -> list[str]:
    """Return the strings of a module that are no docstrings; `x` stands for a value in one."""
    nodes = [*ast.walk(ast.parse(module))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    formatted = [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
    known = docstrings | {id(part) for parts in formatted for part in parts}
    constants = [node for node in nodes if isinstance(node, ast.Constant)]
    plain: list[list[ast.expr]] = [[node] for node in constants if id(node) not in known]
    return [
        "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
        for parts in formatted + plain
    ]


def test_help_and_messages() -> None:
    texts = {path: messages(path.read_text()) for path in PACKAGE.rglob("*.py")}
    texts |= {path: [path.read_text()] for path in HELP.glob("*.txt")}
    found = [
        f"{page_name(path)}: {bad}"
        for path, several in texts.items()
        for text in several
        for bad in bad_words(text, WORDS)
    ]
    assert found == []


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_the_first_lines_say_for_whom_a_page_is(path: Path) -> None:
    first = path.read_text(encoding="utf-8").split("\n\n")[1]
    assert re.search(r"\b[Ff]or\b", " ".join(first.splitlines()[:2]))


@pytest.mark.parametrize(
    "text",
    [
        "- 2.1 demands SciPy",
        "| a | It\ngoes on |",
        "A GPU, none has\nrun.",
        "The versions were wrong, too.",
        "# Title\n\nWhat is kept, stays.",
        "That was not tried.",
    ],
)
def test_a_bad_word_is_found(text: str) -> None:
    assert len(bad_words(text, {**WORDS, UNTRIED: ""})) == 1


def test_code_generated_parts_and_docstrings_are_not_judged() -> None:
    code = "```console\n$ serve\n```\nSee `serve`.\n"
    table = "<!-- generated: commands -->\nWhat it serves, too.\n<!-- end -->\n"
    assert bad_words(f"{code}{table}How does it serve?", WORDS) != []
    assert bad_words(f"{code}{table}It runs on demand. What is it?", WORDS) == []
    (text,) = messages('"""It serves, too."""\nsay(f"It {works:<3}, too.")\n')[:1]
    assert text == "It x, too."
