"""The commands of README.md, typed in their order in an empty folder; what they say is there."""

import re
import sys
from pathlib import Path

import pytest

from support.checkout import ROOT, Bases, Checkout
from support.page_commands import Reader, page_commands

pytestmark = pytest.mark.nightly  # it makes an environment, and installs imgbuild in another one

PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def reader(checkout: Checkout, tmp_path: Path) -> Reader:
    """Give an empty folder; uv stands for pipx, and installs into the folder as pipx would.

    Of a README that says uvx, the clone is run, since the index has the last release.
    """
    tools = f"UV_TOOL_DIR={tmp_path}/tools UV_TOOL_BIN_DIR={tmp_path}/bin"
    programs = Path(sys.executable).parent
    names = {
        r"\bURL\b": str(ROOT),
        r"^pipx install": f"{tools} {programs}/uv tool install",
        r"^uvx": f"{programs}/uvx --from ./imgbuild",
        r"^imgbuild\b": f"{tmp_path}/bin/imgbuild",
    }
    return Reader(checkout, tmp_path, names)


def test_the_page_as_it_is_written(base: Bases, reader: Reader) -> None:
    """The image is there already, so that `make demo` need not build it once more."""
    base("tf-2.2-cpu-debian")
    clone, demo, use, *install = page_commands(PAGE)
    reader.type(clone)
    assert "tf-2.2-cpu-debian" in reader.type(demo)
    reader.see(use)
    assert use.prints == ("2.2.3",)
    shown = [reader.type(command) for command in install][-1]
    assert re.search(r"^tensorflow +2\.2\.3\b", shown, re.MULTILINE), shown
