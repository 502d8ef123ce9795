"""The commands of docs/own-program.md, typed in their order."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.checkout import LEARNT, ROOT, Bases, Checkout
from support.page_commands import IMGBUILD, Reader, page_commands

PAGE = (ROOT / "docs" / "own-program.md").read_text(encoding="utf-8")
TAG = "local/own-program:2.2"


@pytest.fixture
def reader(base: Bases, checkout: Checkout, open_folder: Path, tag: str) -> Reader:
    """Return a reader in the folder of the program, who uses names of this test alone."""
    base("tf-2.2-cpu-debian")
    names = {**IMGBUILD, TAG: tag, " --exec": f" --job {tag[:-2]} --exec"}
    reader = Reader(checkout, open_folder, names).with_examples()
    return Reader(checkout, reader.folder / "examples" / "own-program", names)


def test_a_reader_adds_a_package_and_trains(reader: Reader) -> None:
    enter, first, extend, make, again, kept = page_commands(PAGE)
    assert enter.line == "cd examples/own-program"
    here = replace(reader.checkout, root=reader.folder)
    said = here.typed(["bash", "-euc", reader.here(first.line)], 1).stderr
    assert "No module named 'pandas'" in said
    assert "`imgbuild extend tf-2.2-cpu-debian --pip pandas`" in said
    assert "The image has no module pandas." in PAGE
    reader.see(extend)
    (lock,) = reader.folder.glob("*.lock.txt")
    assert "pandas==" in lock.read_text(encoding="utf-8")
    reader.see(make)
    assert LEARNT.search(reader.type(again))
    assert LEARNT.search("\n".join(again.prints))
    reader.see(kept)
