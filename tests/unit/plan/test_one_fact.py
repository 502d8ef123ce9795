"""One fact at a time: what decides an input digest, and which image of the engine counts."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench import INPUTS, NEW

from imgbuild.dockerfile.lockfile import FOLDER
from imgbuild.engine.types import HistoryEntry, StoredImage
from imgbuild.inputs.build_inputs import BuildInputs, ImageDownloads
from imgbuild.inputs.download import Download
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import changes_since, parts_label
from imgbuild.plan.digest import InputDigest, InputReader, input_digest
from imgbuild.plan.plan import Action, PlanItem, is_own, make_plan, own_names
from imgbuild.project import Project

FILE = Download("a.tar", "https://x.example/a.tar", "a" * 64)
OTHER = Download("a.tar", "https://x.example/a.tar", "b" * 64)


def _with(*contexts: tuple[str, Download]) -> BuildInputs:
    files = {name: (file,) for name, file in contexts}
    return replace(INPUTS, downloads={NEW: ImageDownloads(files, {})})


def test_every_input_decides_the_digest(images: dict[str, Image], project: Project) -> None:
    reader, image = InputReader(project), images[NEW]
    python = INPUTS.interpreters["3.6.15"]
    base = INPUTS.bases["debian-12"]
    each = (
        INPUTS,
        replace(INPUTS, bases={"debian-12": replace(base, digest="sha256:x")}),
        replace(INPUTS, interpreters={"3.6.15": replace(python, digest="sha256:x")}),
        replace(INPUTS, uv_version="0.13.9"),
        replace(INPUTS, standin="a note"),
        replace(INPUTS, snapshots={"debian": Path("/20261101T000000Z")}),
        _with(("downloads", FILE)),
        _with(("downloads", OTHER)),
        _with(("conda-packages", FILE)),
        _with(("downloads", FILE), ("conda-packages", FILE)),
    )
    totals = [input_digest(image, one, reader).total for one in each]
    assert len({*totals}) == len(each)


def test_what_may_be_executed_is_another_file(tmp_path: Path) -> None:
    file = tmp_path / "images" / "files" / "run"
    file.parent.mkdir(parents=True)
    digests = set()
    for text, mode in (("a", 0o644), ("a", 0o755), ("b", 0o755)):
        file.write_text(text)
        file.chmod(mode)
        digests.add(InputReader(Project(tmp_path)).digest("files/run"))
    assert len(digests) == 3


def _stored(image: Image, name: str, tags: tuple[str, ...], created: int) -> StoredImage:
    labels = {
        "imgbuild.name": image.name,
        "imgbuild.input-digest": "sha256:new",
        "imgbuild.repository": image.repository,
        "org.opencontainers.image.created": f"1970-01-01T00:00:{created:02}Z",
    }
    return StoredImage(name, tags, labels, created=created)


def _planned(image: Image, *images: tuple[str, bool, bool, int]) -> PlanItem:
    """Return the plan with images of these inputs: id, named, passed, and the time of creation."""
    stored = [
        _stored(image, name, image.tags if named else (), created)
        for name, named, _, created in images
    ]
    passed = {name: good for name, _, good, _ in images}
    history = [HistoryEntry(f"LABEL imgbuild.name={image.name}")]
    digest = InputDigest("sha256:new", {})
    (item,) = make_plan(
        [(image, digest)], stored, lambda _, one: passed[one], lambda _: history, test=True
    )
    return item


@pytest.mark.parametrize(
    ("older", "newer", "action", "counts"),
    [
        ((False, True), (False, False), Action.TAG, "older"),
        ((False, False), (False, True), Action.TAG, "newer"),
        ((False, True), (False, True), Action.TAG, "newer"),
        ((True, True), (False, True), Action.NOTHING, "older"),
        ((True, False), (False, True), Action.TEST, "older"),
    ],
)
def test_of_two_images_of_the_same_inputs(
    images: dict[str, Image],
    older: tuple[bool, bool],
    newer: tuple[bool, bool],
    action: Action,
    counts: str,
) -> None:
    """The one with the name; else one that passed, though a newer one failed."""
    item = _planned(images[NEW], ("older", *older, 1), ("newer", *newer, 2))
    assert (item.action, item.image_id) == (action, counts)


def test_the_image_with_its_names_counts_before_one_with_another_name(
    images: dict[str, Image],
) -> None:
    image = images[NEW]
    own = _stored(image, "newer", (f"{image.repository}:of-before",), 2)
    named = _stored(image, "older", image.tags, 1)
    digest = InputDigest("sha256:new", {})
    (item,) = make_plan([(image, digest)], [own, named], lambda *_: True, lambda _: (), test=True)
    assert (item.action, item.image_id) == (Action.NOTHING, "older")


def test_a_layer_of_a_lock_is_no_change_of_its_own(images: dict[str, Image]) -> None:
    parts = {f"locks/{FOLDER}/a-1.txt": "1", "stage os": "1", "lock": "1", "lock packages": "a==1"}
    labels = {"imgbuild.inputs": parts_label(InputDigest("", parts))}
    new = InputDigest("", {**parts, f"locks/{FOLDER}/a-1.txt": "2", "stage os": "2"})
    assert [one.input for one in changes_since(labels, images[NEW], new)] == ["stage os"]


def test_a_name_of_a_longer_repository_is_somebody_elses() -> None:
    tags = ("a/b:1", "a/bc:1", "a/b/c:1", "host:5000/a/b:1", "a/b-x:1")
    assert own_names(StoredImage("sha256:x", tags, {"imgbuild.repository": "a/b"})) == ("a/b:1",)
    assert own_names(StoredImage("sha256:x", tags, {})) == ()


@pytest.mark.parametrize(("created", "own"), [(0, True), (1, False), (-1, False)])
def test_an_image_on_top_was_created_at_another_time(created: int, own: bool) -> None:
    labels = {
        "imgbuild.name": NEW,
        "imgbuild.input-digest": "sha256:new",
        "imgbuild.repository": "a/b",
        "org.opencontainers.image.created": "1970-01-01T00:00:00Z",
    }
    stored = StoredImage("sha256:x", ("a/b:1",), labels, created=created)
    assert is_own(stored, lambda _: ()) is own
