"""Read the commands of a page of the documentation, and type them as its reader does."""

import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from support.checkout import ROOT, Checkout

#: A name of `Reader`: imgbuild of this checkout, in whatever folder it is typed.
IMGBUILD = {r"^imgbuild\b": f"IMGBUILD_PROJECT={ROOT} {Path(sys.executable).parent}/imgbuild"}
_NUMBER = re.compile(r"\d+(\.\d+)?")
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class PageCommand:
    """A command, and what the page says that it prints."""

    line: str
    prints: tuple[str, ...] = ()


def page_commands(text: str) -> list[PageCommand]:
    """Return the commands of `console` blocks; they go on after a backslash, and with `>`."""
    found: list[PageCommand] = []
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(PageCommand(line.removeprefix("$ ")))
                continue
            last = found.pop()
            if line.startswith("> ") or last.line.endswith("\\"):
                found.append(PageCommand(f"{last.line}\n{line.removeprefix('> ')}"))
            else:
                found.append(PageCommand(last.line, (*last.prints, line)))
    return found


def section(text: str, title: str) -> str:
    """Return what stands below a title of the second level."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def forms(said: str) -> set[str]:
    """Return the lines without their numbers, which differ from run to run."""
    return {_NUMBER.sub("#", line) for line in said.splitlines()}


@dataclass(frozen=True)
class Reader:
    """Types what a page says, with `names` here for the page's, which are regular expressions."""

    checkout: Checkout
    folder: Path
    names: dict[str, str]

    def with_examples(self) -> Self:
        shutil.copytree(ROOT / "examples", self.folder / "examples")
        return self

    def type(self, command: PageCommand) -> str:
        """Type one command; return what it printed."""
        here = replace(self.checkout, root=self.folder)
        return here.typed(["bash", "-euc", self.here(command.line)]).stdout

    def see(self, command: PageCommand) -> str:
        """Type a command; fail unless it prints the page's lines, if any, in whatever numbers."""
        printed = self.type(command)
        if command.prints:
            assert forms(printed) == forms("\n".join(command.prints)), printed
        return printed

    def here(self, text: str) -> str:
        for name, mine in self.names.items():
            text = re.sub(name, mine, text)
        return text
