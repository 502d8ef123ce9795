"""The exit code of ``imgbuild scan``."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from imgbuild.cli import scan_command
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.dockerfile.labels import NAME
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.scan.findings import Scan, SecurityFinding
from imgbuild.scan.osv import Package
from support.bombs import zip_file
from support.project_copy import NO_ENGINE, ROOT, invoke

OPENSSL = SecurityFinding("openssl", "openssl", "1", "2", "open")
ACCEPTED = SecurityFinding("openssl", "openssl", "1", "2", "accepted until …", counts=False)
BOTH = ("tf-2.2-cpu-debian", "tf-2.3-cpu-debian")
RECORD = {
    "id": "GHSA-1",
    "affected": [
        {"package": {"ecosystem": "PyPI", "name": "pillow"}, "versions": ["8.4.0"], "ranges": []}
    ],
}


@pytest.fixture
def scan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, _hasty: None) -> Any:
    """Return how to scan an image with one package and these findings; OSV is not reachable."""
    monkeypatch.setenv("IMGBUILD_PROJECT", str(ROOT))
    monkeypatch.setenv("IMGBUILD_MIRRORS", "osv=http://127.0.0.1:9/")
    monkeypatch.setattr("imgbuild.suites.container.require_docker_client", lambda: None)

    def run(*words: str, findings: tuple[SecurityFinding, ...] = ()) -> Result:
        def scanned(name: str, _: object, ask: scan_command.Ask, __: object) -> Scan:
            known, asked = ask((Package("PyPI", "pillow", "8.4.0"),))
            more = [
                SecurityFinding(i, "pillow", "8.4.0", "", "open") for i in sum(known.values(), ())
            ]
            return Scan(name, "sha256:1", "2026-11-25", (*findings, *more), asked, (), ())

        monkeypatch.setattr(scan_command, "_scan_image", scanned)
        context = nullcontext(SimpleNamespace(engine=None, state=tmp_path))
        monkeypatch.setattr("imgbuild.build.context.open_context", lambda *_: context)
        return invoke("scan", *BOTH, *words, env=NO_ENGINE)

    return run


@pytest.mark.parametrize("findings", [(), (ACCEPTED,)])
def test_scan_without_an_answer_of_osv(scan: Any, findings: tuple[SecurityFinding, ...]) -> None:
    """Nothing was found because nobody was asked: that is not clean."""
    result = scan(findings=findings)
    assert isinstance(result.exception, MachineError)
    assert all(name in str(result.exception) for name in ("2.2-cpu", "2.3-cpu", "--osv FILE"))
    assert result.stdout.count("known vulnerabilities: not asked: ") == 2
    (one, _) = json.loads(scan("--json", findings=findings).stdout)
    assert one["vulnerabilities"].startswith("not asked: ")


def test_scan_with_findings_and_no_answer_of_osv(scan: Any) -> None:
    result = scan(findings=(OPENSSL,))
    assert isinstance(result.exception, CheckFailedError)
    assert "fixes are missing" in str(result.exception)
    assert "OSV did not answer" in str(result.exception)


def test_scan_with_an_answer_of_osv(scan: Any, tmp_path: Path) -> None:
    for record, kind in (({**RECORD, "withdrawn": "2022"}, type(None)), (RECORD, CheckFailedError)):
        path = tmp_path / "all.zip"
        path.write_bytes(zip_file({"1.json": json.dumps(record).encode()}))
        result = scan("--osv", str(path))
        assert isinstance(result.exception, kind)
        assert "OSV did not answer" not in str(result.exception)


def test_an_image_for_arm64_is_compared_with_its_own_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also its parts without security fixes are found, by the name in its label."""
    name, asked = "tf-2.12-cpu-debian-arm64", []
    stored = StoredImage("sha256:1", (), {NAME: name}, platform="linux/arm64")
    matrix = load_matrix(ROOT / "matrix.yaml")

    def find_updates(*words: object) -> tuple[object, ...]:
        asked.append(words[-1])
        return ()

    sbom = json.dumps({"components": []})
    monkeypatch.setattr("imgbuild.publish.sbom.make_locked_sbom", lambda *_: sbom)
    monkeypatch.setattr("imgbuild.scan.updates.read_status", lambda *_: b"")
    monkeypatch.setattr("imgbuild.scan.updates.find_updates", find_updates)
    engine = SimpleNamespace(need=lambda *_: stored)
    context = SimpleNamespace(engine=engine, images=all_images(matrix), project=None)
    found = scan_command._scan_image("it", None, lambda _: ({}, "OSV"), context)  # type: ignore[arg-type]
    assert asked == ["linux/arm64"]
    assert any("TensorFlow 2.12.1" in text for text in found.end_of_life)
