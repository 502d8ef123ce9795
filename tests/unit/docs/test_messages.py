"""The options that messages name exist, in the command that they are named for."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import imgbuild
from support.generated_tables import click_commands

PACKAGE = Path(imgbuild.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
#: A command in backquotes, whoever's it is.
QUOTED = re.compile(r"`([^`\n]+)`")
#: What texts name of other programs: docker, pip, uv, Poetry, git, kubectl, TensorBoard, MPI.
OF_OTHERS = {
    *("--global", "--add", "--progress", "--all", "--enable-shared", "--volumes", "--rm"),
    *("--logdir", "--host", "--gpus", "--oversubscribe", "--runtime", "--use-aliases"),
    *("--from-file", "--no-emit-project", "--no-hashes", "--without-hashes"),
}
#: What every command takes, beside its own options (imgbuild.cli.main).
OF_ALL = {"--version", "--settings", "--mirror"}
#: The folders and modules of which one command alone makes use.
OWNERS = {
    "extend": "extend",
    "training": "run",
    "cli/extend_command.py": "extend",
    "cli/test_command.py": "test",
    "cli/push_command.py": "push",
    "cli/fitting_images.py": "list",
}
#: A sentence has words around its options; arguments of programs and patterns have none.
SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,}|: ?give|[.,;:)] ")
NO_SENTENCE = re.compile(
    r"\\[sSb.]|^(RUN|FROM|COPY|ADD|docker|timeout) |^--\S+=|\n(RUN|COPY|FROM) "
)


def _messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Give the texts of a module but docstrings; a value in a text is ``{}``."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "{}" for one in node.values]
            skipped |= {id(inner) for inner in ast.walk(node)}
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            yield node.lineno, str(node.value)


@cache
def _options() -> dict[str, set[str]]:
    return {
        name: {word for one in command.params for word in (*one.opts, *one.secondary_opts)}
        for name, command in click_commands().items()
    }


def _faults(path: str, text: str) -> Iterator[str]:
    """Give the options of a message that do not exist where it names them."""
    options = _options()
    every = set().union(*options.values())
    if not SENTENCE.search(text) or NO_SENTENCE.search(text):
        return
    for quoted in QUOTED.findall(text):
        words = quoted.split()
        command = " ".join(words[1:3])
        if command not in options:
            command = " ".join(words[1:2])
        if words[0] == "imgbuild" and command in options:
            known = options[command]
            yield from (f"{quoted}" for one in OPTION.findall(quoted) if one not in known)
    owner = next((OWNERS[one] for one in (path, path.partition("/")[0]) if one in OWNERS), None)
    known = options[owner] if owner else every
    for option in OPTION.findall(QUOTED.sub("", text)):
        if option not in known | OF_OTHERS | OF_ALL:
            yield option


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: file.stem)
def test_messages_name_options_that_exist(file: Path) -> None:
    path = str(file.relative_to(PACKAGE))
    tree = ast.parse(file.read_text(encoding="utf-8"))
    wrong = [
        f"{path}:{line}: {fault}: {text[:80]}"
        for line, text in _messages(tree)
        for fault in _faults(path, text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("extend/extended.py", "It ran too long; raise the limit with --step-timeout.", True),
        ("engine/failure.py", "Raise the limit with `imgbuild build --step-timeout`.", False),
        ("engine/failure.py", "Raise the limit with `imgbuild extend --step-timeout`.", True),
        ("engine/failure.py", "Raise the limit with --no-such-option, or not.", True),
        ("extend/extended.py", "The tag is not set; --no-test sets it.", False),
    ],
)
def test_wrong_option_is_found(path: str, text: str, fault: bool) -> None:
    assert bool([*_faults(path, text)]) is fault
