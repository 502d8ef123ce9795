"""Read the commands of a page of the documentation."""

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class PageCommand:
    """A command line, and what the page says that it prints."""

    line: str
    prints: tuple[str, ...] = ()


def page_commands(text: str) -> list[PageCommand]:
    """Return the commands of a page's `console` blocks, in their order; each is one line."""
    found: list[PageCommand] = []
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(PageCommand(line.removeprefix("$ ")))
            else:
                found[-1] = PageCommand(found[-1].line, (*found[-1].prints, line))
    return found
