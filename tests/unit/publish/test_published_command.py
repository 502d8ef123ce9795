"""``imgbuild published``: the table, JSON, and the check of tags and records."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project_copy import command
from published_images import RECORD, publish
from registry_server import Fault, RegistryServer, registry_server
from typer.testing import Result

from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.tags import input_tag
from imgbuild.publish.record import published_inputs

FIRST, SECOND = "2026-11-20T08:00:00Z", "2026-11-21T09:30:00Z"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    settings = tmp_path / "settings.yaml"
    settings.write_text("publishing: {attempts: 2, first_wait: 0}\n")
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(settings))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with registry_server() as started:
        yield started


def run(*words: str) -> Result:
    return command("published", *words)


def filled(server: RegistryServer) -> None:
    publish(server.store, "2.2.0-old", moving=("2.2-cpu", "2.2.0-cpu"), published=FIRST)
    publish(server.store, "2.2.0-new", moving=("2.2-cpu",), published=SECOND)


def test_nothing_has_been_published(server: RegistryServer) -> None:
    for options in ((), ("--check",)):
        found = run("--from", server.name, *options)
        assert (found.stdout, server.name in found.stderr) == ("", True)
    assert json.loads(run("--from", server.name, "--json").stdout) == []
    assert server.store.tags() == ()


def test_the_table(server: RegistryServer) -> None:
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


def test_json(server: RegistryServer) -> None:
    filled(server)
    found: list[dict[str, Any]] = json.loads(run("--from", server.name, "--json").stdout)
    assert [(one["tag"], one["points_here"]) for one in found] == [
        ("2.2.0-old", ["2.2.0-cpu"]),
        ("2.2.0-new", ["2.2-cpu"]),
    ]
    assert found[0]["pins"] == RECORD.pins
    assert "report" not in found[0]
    assert found[0]["moving"] == ["2.2-cpu", "2.2.0-cpu"]


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
    server.store.tagged["2.2-cpu"] = server.store.tagged["2.2.0-old"]
    orphan = "2.2.0-cpu-20261120.2"
    server.store.tagged[orphan] = server.store.tagged["2.2.0-old"]
    checked = run("--from", server.name, "--check")
    assert "2.2.0-new" in checked.stdout
    moved, unrecorded, summary = checked.stderr.splitlines()
    for line, facts in (
        (moved, ("note: ", f"{server.name}:2.2-cpu", "2.2.0-old", "2.2.0-new")),
        (unrecorded, ("note: ", f"{server.name}:{orphan}", "--release 20261120.2 ")),
        (summary, ("4 tags",)),
    ):
        assert [fact for fact in facts if fact not in line] == []
    assert run("--from", server.name).stderr == ""


def test_input_digests_that_are_published(server: RegistryServer) -> None:
    assert published_inputs(server.store) == frozenset()
    record = publish(server.store, "2.2.0-old")
    server.store.tagged[input_tag("sha256:2")] = record.digest
    assert published_inputs(server.store) == {input_tag("sha256:2")}


def test_exit_codes(server: RegistryServer) -> None:
    with pytest.raises(InputError, match="--from"):
        run("--from", "")
    with pytest.raises(InputError, match="--from"):
        run()
    server.fail("GET /tags", *[Fault(503)] * 2)
    with pytest.raises(MachineError, match=r"503 \(2 tries\)"):
        run("--from", server.name)
