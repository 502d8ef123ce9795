"""The commands of docs/use-image.md, typed by a user without imgbuild, against a real registry."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.checkout import LEARNT, ROOT, Bases, Checkout
from support.own_registry import free_port, own_registry
from support.page_commands import PageCommand, Reader, page_commands
from support.tensorboard_page import answer
from support.waiting import wait_for

PAGE = (ROOT / "docs" / "use-image.md").read_text(encoding="utf-8")
REPOSITORY = "registry.example.org/ml/tensorflow"
TAG = "2.2-cpu"
#: A user whom the image does not know; the page's `$(id -u)` is this one.
USER = 4321
#: What the page trains, and where it logs.
RUNS = {"root", "user", "horovodrun"}


@pytest.fixture
def published(base: Bases, checkout: Checkout, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Have the page's image in a registry; give its name there and its id."""
    tag = base("tf-2.2-cpu-debian").tag
    with own_registry(tmp_path / "registry") as registry:
        there = f"{registry.host}/ml/tensorflow"
        checkout.printed("tag", tag, f"{there}:{TAG}")
        checkout.printed("push", f"{there}:{TAG}")
        image = checkout.printed("image", "inspect", "--format", "{{.Id}}", tag)
        checkout.docker("rmi", f"{there}:{TAG}")
        yield there, image
        checkout.docker("rmi", f"{there}:{TAG}")


@pytest.fixture
def reader(
    checkout: Checkout, published: tuple[str, str], tmp_path: Path, mark: str, tag: str
) -> Reader:
    names = {
        re.escape(REPOSITORY): published[0],
        r"\$\(id -[ug]\)": str(USER),
        r"\bjob\b(?!/)": tag,
        r"\bboard\b": f"{mark}-board",
        r"127\.0\.0\.1:6006": f"127.0.0.1:{free_port()}",
    }
    return Reader(checkout, tmp_path, names).with_examples()


def _check(reader: Reader, command: PageCommand, printed: str) -> None:
    """Fail unless it printed what the page says; what is learnt may differ in the last digit."""
    if command.line == "mkdir logs":
        shutil.chown(reader.folder / "logs", USER, USER)  # the reader made it
    for line in command.prints:
        found = LEARNT.search(printed) if LEARNT.search(line) else line in printed.splitlines()
        assert found, f"{command.line}\nprints {printed!r}, not {line!r}"


def _scalars(reader: Reader) -> Any:
    """Return the scalars by run that the page of TensorBoard draws, once each run has a loss."""
    (url,) = re.findall(r"<(http://\S+/tags)>", PAGE)

    def drawn() -> Any:
        found = answer(reader.here(url))
        return found if found and _losses(found) == RUNS else None

    return wait_for(drawn, what=f"the losses of {sorted(RUNS)} at {url}")


def _losses(scalars: dict[str, dict[str, Any]]) -> set[str]:
    """Return the runs with a scalar of the loss, which TensorBoard finds one after the other."""
    return {
        run.partition("/")[0] for run, tags in scalars.items() if any("loss" in tag for tag in tags)
    }


def test_the_page_as_it_is_written(reader: Reader, published: tuple[str, str]) -> None:
    commands = page_commands(PAGE)
    assert len(commands) == 10, "a command of the page that the test does not know"
    there, image = published
    scalars: Any = {}
    for command in commands:
        if command.line.startswith("docker rm "):
            scalars = _scalars(reader)
        _check(reader, command, reader.type(command))
    assert _losses(scalars) == RUNS
    assert len(scalars) == len(RUNS)
    inspect = ("image", "inspect", "--format", "{{.Id}}", f"{there}:{TAG}")
    assert reader.checkout.docker(*inspect).stdout.strip() == image
    owners = {path.name: path.stat().st_uid for path in (reader.folder / "logs").iterdir()}
    assert owners == {"root": 0, "user": USER, "horovodrun": USER}
