"""``imgbuild release list``: the table, JSON, the check of tags and records; what a push prints."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from imgbuild.cli.push_command import pushed_lines
from imgbuild.core.errors import CheckFailedError
from imgbuild.publish.image_push import PushedImage
from imgbuild.publish.push import PushResult
from support.project_copy import command
from support.published_images import RECORD, publish
from support.registry_server import RegistryServer, registry_server

FIRST, SECOND = "2026-11-20T08:00:00Z", "2026-11-21T09:30:00Z"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with registry_server() as started:
        yield started


def run(*words: str) -> Result:
    return command("release", "list", *words)


def filled(server: RegistryServer) -> None:
    publish(server.store, "2.2.0-old", moving=("2.2-cpu", "2.2.0-cpu"), published=FIRST)
    publish(server.store, "2.2.0-new", moving=("2.2-cpu",), published=SECOND)


def test_nothing_has_been_published(server: RegistryServer) -> None:
    for options in ((), ("--check",)):
        found = run("--from", server.name, *options)
        assert (found.stdout, server.name in found.stderr) == ("", True)
    assert json.loads(run("--from", server.name, "--json").stdout) == []
    assert server.store.tags() == ()


def test_the_table_and_json(server: RegistryServer) -> None:
    filled(server)
    digests = [server.store.tagged[tag][7:19] for tag in ("2.2.0-new", "2.2.0-old")]
    assert run("--from", server.name).stdout.splitlines() == [
        "image              digest        MB      published         suites",
        f"tf-2.2-cpu-debian  {digests[0]}  1234.6  2026-11-21 09:30  1 passed",
        "  suites: gpu_runs skipped",
        "  2.2.0-new 2.2-cpu",
        f"tf-2.2-cpu-debian  {digests[1]}  1234.6  2026-11-20 08:00  1 passed",
        "  suites: gpu_runs skipped",
        "  2.2.0-old 2.2.0-cpu",
    ]
    found: list[dict[str, Any]] = json.loads(run("--from", server.name, "--json").stdout)
    points = [(one["tag"], one["points_here"]) for one in found]
    assert points == [("2.2.0-old", ["2.2.0-cpu"]), ("2.2.0-new", ["2.2-cpu"])]
    assert (found[0]["pins"], found[0]["moving"]) == (RECORD.pins, ["2.2-cpu", "2.2.0-cpu"])
    assert "report" not in found[0]


@pytest.mark.parametrize(
    ("tag", "points_to", "expected"),
    [
        ("2.2-cpu", "other", "2.2-cpu .*sha256:.* 2.2.0-new "),
        ("2.2-cpu", None, "2.2-cpu .* 2.2.0-new "),
        ("2.2.0-old", "other", "2.2.0-old .*sha256:"),
        ("2.2.0-old", None, "2.2.0-old .* 2.2.0-old "),
        ("2.2.0-old.record", "other", "2.2.0-old.record"),
    ],
)
def test_check_of_what_does_not_fit(
    server: RegistryServer, tag: str, points_to: str | None, expected: str
) -> None:
    filled(server)
    other = server.store.add_image("other").digest
    del server.store.tagged[tag]
    if points_to:
        server.store.tagged[tag] = other
    with pytest.raises(CheckFailedError, match=expected):
        run("--from", server.name, "--check")
    assert "note: " in run("--from", server.name).stderr


def test_tags_that_may_surprise_are_notes(server: RegistryServer) -> None:
    """One was moved back; the push of an image was killed before its record."""
    filled(server)
    orphan, old = "2.2.0-cpu-20261120.2", server.store.tagged["2.2.0-old"]
    server.store.tagged |= {"2.2-cpu": old, orphan: old}
    checked = run("--from", server.name, "--check")
    assert "2.2.0-new" in checked.stdout
    moved, unrecorded, unverified, summary = checked.stderr.splitlines()
    assert moved.startswith(f"note: {server.name}:2.2-cpu ")
    assert ("2.2.0-old" in moved, "2.2.0-new" in moved) == (True, True)
    assert unrecorded.startswith(f"note: {server.name}:{orphan} ")
    assert "--release 20261120.2." in unrecorded
    assert "--key" in unverified
    assert "4 tags" in summary
    assert run("--from", server.name).stderr == ""


def test_what_a_push_did_is_short_and_the_tags_are_below() -> None:
    """It fits a terminal: tags are never cut."""
    tag = "1.12.0-cpu-py36-debian12-intelmpi2021.8.0-20261121.1"
    moving = ("1.12-cpu-intelmpi", "1.12.0-cpu-intelmpi")
    record = replace(RECORD, image="tf-1.12-cpu-debian-intelmpi", tag=tag, moving=moving)
    images = (PushedImage(record, ("push", "record"), moving), PushedImage(RECORD))
    assert pushed_lines(PushResult("registry.example.org/ml/tensorflow", images, {})) == [
        "image                        digest        MB    done",
        "tf-1.12-cpu-debian-intelmpi  222222222222  1235  pushed, recorded, moved 2 tags",
        f"  {tag} {moving[0]}",
        f"  {moving[1]}",
        "tf-2.2-cpu-debian            222222222222  1235  up to date",
        "  2.2.0-cpu-py38-debian12-openmpi4.1.4-20261120.1 2.2-cpu 2.2.0-cpu",
        "1 published, 1 up to date.",
        f"docker pull registry.example.org/ml/tensorflow:{moving[0]}",
    ]
