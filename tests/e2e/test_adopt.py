"""The commands of docs/adopt.md, typed in their order, and what adopt leaves behind."""

import json
from pathlib import Path

import pytest

from support.checkout import ROOT, Bases, Checkout
from support.page_commands import IMGBUILD, PageCommand, Reader, forms, page_commands

PAGE = (ROOT / "docs" / "adopt.md").read_text(encoding="utf-8")
TAG = "adopted/churn:1"


@pytest.fixture
def reader(base: Bases, checkout: Checkout, open_folder: Path, tag: str) -> Reader:
    """Return a reader in the folder of the example, whose image has a name of this test alone."""
    base("tf-2.2-cpu-debian")
    names = {**IMGBUILD, TAG: tag, r" adopt\b": f" adopt --tag {tag}"}
    names |= {" --exec": f" --job {tag[:-2]} --exec"}
    reader = Reader(checkout, open_folder, names).with_examples()
    return Reader(checkout, reader.folder / "examples" / "churn", names)


def test_reader_adopts_and_runs(reader: Reader, tag: str) -> None:
    copy, enter, adopt, *others = page_commands(PAGE)
    assert (copy.line, enter.line) == ("cp -r examples/churn ~/churn", "cd ~/churn")
    said = reader.type(adopt)
    assert forms(said.replace(tag, TAG)) == forms("\n".join(adopt.prints)), said
    kept = {path.name: path.read_text() for path in reader.folder.glob("imgbuild.adopt*")}
    assert {*kept} == {"imgbuild.adopt.yaml", "imgbuild.adopt.lock.txt"}
    assert "tabulate==0.8.7" in kept["imgbuild.adopt.lock.txt"]
    make, write, run = others[:3]
    reader.type(make)
    reader.type(write)
    reader.see(run)


def test_adopt_repeats_nothing(reader: Reader, tag: str, checkout: Checkout) -> None:
    first = json.loads(reader.type(PageCommand("imgbuild adopt --date 2020-06-01 --json")))
    facts = {name: first[name] for name in ("outcome", "reason", "tensorflow", "image", "refused")}
    assert facts == {
        "outcome": "stops",
        "reason": "data",
        "tensorflow": "2.2.3",
        "image": "tf-2.2-cpu-debian",
        "refused": None,
    }
    assert first["command"] == ["python", "train.py", "--data", "data/churn.csv"]
    image_id = ("image", "inspect", "--format", "{{.Id}}", tag)
    before = checkout.printed(*image_id)
    assert "Nothing has changed" in reader.type(PageCommand("imgbuild adopt"))
    assert checkout.printed(*image_id) == before
    decisions = (reader.folder / "imgbuild.adopt.yaml").read_text()
    (reader.folder / "train.py").write_text("import tensorflow\nprint('new')\n")
    changed = json.loads(reader.type(PageCommand("imgbuild adopt --json")))
    assert changed["outcome"] == "finished"
    assert (reader.folder / "imgbuild.adopt.yaml").read_text() == decisions


def test_remedy_adds_a_module(reader: Reader) -> None:
    """A module that is imported by a text is found only when the program fails."""
    program = "import tensorflow\n__import__('importlib').import_module('tabulate')\n"
    (reader.folder / "train.py").write_text(program)
    mended = json.loads(reader.type(PageCommand("imgbuild adopt --date 2020-06-01 --json")))
    assert mended["outcome"] == "finished"
    assert "tabulate" in " ".join(mended["remedies"])
