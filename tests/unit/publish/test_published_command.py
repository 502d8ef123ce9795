"""``imgbuild published``: the table, JSON, and the check of tags and records."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from published_images import RECORD, publish
from registry_server import Fault, RegistryServer, registry_server
from typer.testing import CliRunner

from imgbuild.cli import register
from imgbuild.errors import CheckFailedError, ImgbuildError, InputError, MachineError
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


class Run:
    """Runs the command; an error of imgbuild's own is raised."""

    def __init__(self, *arguments: str) -> None:
        app = typer.Typer()
        register(app)
        result = CliRunner().invoke(app, ["published", *arguments])
        if isinstance(result.exception, ImgbuildError):
            raise result.exception
        assert result.exit_code == 0, result.output
        self.out, self.err = result.stdout, result.stderr


def filled(server: RegistryServer) -> None:
    publish(server.store, "2.2.0-old", moving=("2.2-cpu", "2.2.0-cpu"), published=FIRST)
    publish(server.store, "2.2.0-new", moving=("2.2-cpu",), published=SECOND)


def test_nothing_has_been_published(server: RegistryServer) -> None:
    for options in ((), ("--check",)):
        found = Run("--from", server.name, *options)
        assert found.out == ""
        assert f"Nothing has been published in {server.name}." in found.err
    assert json.loads(Run("--from", server.name, "--json").out) == []
    assert server.store.tags() == ()


def test_the_table(server: RegistryServer) -> None:
    filled(server)
    digests = [server.store.tagged[tag][7:19] for tag in ("2.2.0-new", "2.2.0-old")]
    assert Run("--from", server.name).out.splitlines() == [
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
    found: list[dict[str, Any]] = json.loads(Run("--from", server.name, "--json").out)
    assert [(one["tag"], one["points_here"]) for one in found] == [
        ("2.2.0-old", ["2.2.0-cpu"]),
        ("2.2.0-new", ["2.2-cpu"]),
    ]
    assert found[0]["pins"] == RECORD.pins
    assert "report" not in found[0]
    assert found[0]["moving"] == ["2.2-cpu", "2.2.0-cpu"]


def test_check(server: RegistryServer) -> None:
    filled(server)
    found = Run("--from", server.name, "--check")
    assert "2.2.0-new" in found.out
    assert found.err == "4 tags are as the records say.\n"
    assert Run("--from", server.name).err == ""


@pytest.mark.parametrize(
    ("tag", "points_to", "expected"),
    [
        ("2.2-cpu", "other", "2.2-cpu is sha256:.*the record of 2.2.0-new says sha256:"),
        ("2.2-cpu", None, "2.2-cpu is not there, but the record of 2.2.0-new says"),
        ("2.2.0-old", "other", "2.2.0-old is sha256:"),
        ("2.2.0-old", None, "2.2.0-old is not there, but the record of 2.2.0-old says"),
        ("2.2.0-old.record", "other", "old.record is of the type None"),
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
        Run("--from", server.name, "--check")
    assert "note: " in Run("--from", server.name).err


def test_tags_that_may_surprise_are_notes(server: RegistryServer) -> None:
    """One was moved back; the push of an image was killed before its record."""
    filled(server)
    server.store.tagged["2.2-cpu"] = server.store.tagged["2.2.0-old"]
    orphan = "2.2.0-cpu-20261120.2"
    server.store.tagged[orphan] = server.store.tagged["2.2.0-old"]
    found = Run("--from", server.name, "--check").err
    assert f"note: {server.name}:2.2-cpu is at 2.2.0-old, not at the later 2.2.0-new" in found
    assert f"note: {server.name}:{orphan} has no record: " in found
    assert "--release 20261120.2 " in found
    assert "4 tags are as the records say." in found
    assert Run("--from", server.name).err == ""


def test_input_digests_that_are_published(server: RegistryServer) -> None:
    assert published_inputs(server.store) == frozenset()
    record = publish(server.store, "2.2.0-old")
    server.store.tagged[input_tag("sha256:2")] = record.digest
    assert published_inputs(server.store) == {input_tag("sha256:2")}


def test_exit_codes(server: RegistryServer) -> None:
    with pytest.raises(InputError, match="--from: '' is not HOST"):
        Run("--from", "")
    with pytest.raises(InputError, match="Which registry"):
        Run()
    server.fail("GET /tags", *[Fault(503)] * 2)
    with pytest.raises(MachineError, match=r"answered 503 \(2 tries\)"):
        Run("--from", server.name)
