"""Suite `libraries`: every ELF file finds each library that it names, Python its own modules.

A program that nobody starts in a test still starts for its user, and an extension module that is
imported late does not fail late. Nothing is loaded here: the names are looked up as ld.so does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from library_rules import unexplained
from standard_library import may_be_missing, modules

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

SECONDS = 120
#: CPython's own modules are more than fifty, NumPy's and TensorFlow's as many.
FEWEST = 100


@pytest.fixture(scope="module")
def links(container: Container) -> Ran:
    """Look up the libraries of all files, once."""
    return container.program("elf_links.py", seconds=SECONDS)


def test_the_listing_is_whole(links: Ran) -> None:
    """All files were found and could be read: what misses nothing has been looked at."""
    assert links.json["files"] > FEWEST, f"{links.json['files']} ELF files in the image"
    assert not links.json["unread"], links.json["unread"]


def test_every_library_is_found(links: Ran, expect: Expectation) -> None:
    """Each name is found, or there is a known way by which its file comes by it."""
    wrong = unexplained(links.json["missing"], gpu=expect.variant == "gpu")
    assert not wrong, "\n".join(wrong)


def test_the_standard_library_is_whole(container: Container, expect: Expectation) -> None:
    """Python's modules can be imported, but for those that the documentation names."""
    python = expect.pins["python"]
    allowed = may_be_missing(python, expect.os_id, standin=expect.standin)
    found = container.program("import_modules.py", *modules(python), seconds=SECONDS).json
    assert not {name: found[name] for name in found if name not in allowed}
