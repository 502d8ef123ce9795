"""What is found in an image: updates, known vulnerabilities, accepted ones, and ended parts."""

import json
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.settings import Settings
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Accepted
from imgbuild.net.http import Answer, HttpClient
from imgbuild.net.sites import Sites
from imgbuild.scan import osv
from imgbuild.scan.findings import (
    Scan,
    find_unsupported_parts,
    make_sarif,
    match_findings,
    read_scan,
    save_scan,
)
from imgbuild.scan.osv import Known, Package, ask, list_packages, read
from imgbuild.scan.updates import Update, read_updates
from support.bombs import UNPACKED, memory_below, understated, zip_file
from support.project_copy import ROOT

TODAY = date(2026, 11, 25)
OPENSSL = Package("Debian:12", "openssl", "3.0.15-1~deb12u1")
PILLOW = Package("PyPI", "pillow", "8.4.0")
NUMPY = Package("PyPI", "numpy", "1.18.5")


def test_of_an_sbom_the_packages_are_asked_for_that_osv_knows() -> None:
    purls = [
        "pkg:pypi/pillow@8.4.0",
        "pkg:deb/debian/openssl@3.0.15-1~deb12u1?arch=source&distro=debian-12",
        "pkg:deb/debian/libssl3@3.0.15-1~deb12u1?arch=amd64&distro=debian-12&upstream=openssl",
        "pkg:deb/ubuntu/libstdc%2B%2B6@1%3A2?arch=source&distro=ubuntu-18.04",
        "pkg:generic/cpython@3.6.15",
        "pkg:pypi/tensorflow-cpu-aws@2.15.1",
        "pkg:pypi/tensorflow-aarch64@2.11.1",
    ]
    found = list_packages({"components": [{"purl": one} for one in purls] + [{}]})
    same = {Package("PyPI", "tensorflow", version) for version in ("2.15.1", "2.11.1")}
    others = {OPENSSL, PILLOW, Package("Ubuntu:18.04:LTS", "libstdc++6", "1:2")}
    assert {*found} == same | others, "other builds of TensorFlow have the faults of TensorFlow"


def asked_of_osv(
    packages: list[Package],
    answer: Callable[[list[dict[str, Any]]], object],
    monkeypatch: pytest.MonkeyPatch,
    status: int = 200,
) -> Known:
    """Return what is known of the packages by a mirror of OSV that answers so."""

    def answered(_: HttpClient, method: str, url: str, *__: object, content: bytes) -> Answer:
        assert (method, url) == ("POST", "https://mirror.example/here/v1/querybatch")
        said = answer(json.loads(content)["queries"])
        return Answer(status, {}, json.dumps(said).encode(), url)

    monkeypatch.setattr(HttpClient, "ask", answered)
    mirrors = {"osv": {"url": "https://mirror.example/here/"}}
    settings = Settings.model_validate({"mirrors": mirrors})
    return ask(packages, Sites({"osv": "https://osv.example/"}, settings))


def test_osv_is_asked_for_all_pages_of_all_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions: list[str] = []

    def answer(queries: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer as OSV does: nothing for what is not known, the rest of a long answer later."""
        versions.extend(query["version"] for query in queries)
        results: list[dict[str, Any]] = [{} for _ in queries]
        for query, result in zip(queries, results, strict=True):
            if query["package"] == {"ecosystem": "PyPI", "name": "pillow"}:
                token = query.get("page_token")
                result["vulns"] = [{"id": f"GHSA-{token or 1}", "modified": "x"}]
                result.update({} if token else {"next_page_token": "2"})
        return {"results": results}

    packages = [PILLOW, OPENSSL, *(Package("PyPI", f"p{i}", "1") for i in range(1500))]
    assert asked_of_osv(packages, answer, monkeypatch) == {PILLOW: ("GHSA-1", "GHSA-2")}
    assert Counter(versions) == {"8.4.0": 2, OPENSSL.version: 1, "1": 1500}


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        ({"results": []}, 200, CheckFailedError),
        ([], 200, CheckFailedError),
        ({"results": [{}]}, 404, CheckFailedError),
        ({}, 503, MachineError),
    ],
    ids=["too few", "list", "404", "503"],
)
def test_what_is_no_answer_of_osv_is_not_nothing_found(
    answer: object, status: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.net.sites._TRIES", 1)
    with pytest.raises(kind):
        asked_of_osv([PILLOW], lambda _: answer, monkeypatch, status)


def _records(folder: Path, *records: object) -> Path:
    path = folder / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for index, record in enumerate(records):
            archive.writestr(f"{index}.json", json.dumps(record))
    return path


def _record(name: str, package: Package, **facts: Any) -> dict[str, Any]:
    about = {"ecosystem": package.ecosystem, "name": package.name}
    return {"id": name, "affected": [{"package": about, **facts}]}


def test_records_in_a_file_are_compared_by_versions_and_ranges(tmp_path: Path) -> None:
    def within(*events: dict[str, str]) -> dict[str, Any]:
        every = [{"introduced": "0"}, *events]
        return {"ranges": [{"type": "ECOSYSTEM", "events": every}]}

    path = _records(
        tmp_path,
        _record("A", PILLOW, **within({"fixed": "9.0"})),
        _record("B", PILLOW, **within({"fixed": "8.4.0"})),
        _record("C", PILLOW, **within({"last_affected": "8.4"})),
        _record("D", PILLOW, **within({"fixed": "8.0"}, {"introduced": "8.4.0"})),
        _record("E", PILLOW, versions=["8.4.0"], ranges=[]),
        _record("F", NUMPY, versions=["1.18.4"]),
        {**_record("G", PILLOW, versions=["8.4.0"]), "withdrawn": "2022-01-01T00:00:00Z"},
        _record("DEBIAN-CVE-1", OPENSSL, versions=[OPENSSL.version]),
    )
    assert read([PILLOW, NUMPY, OPENSSL], path) == {
        PILLOW: ("A", "C", "D", "E"),
        OPENSSL: ("DEBIAN-CVE-1",),
    }


@pytest.mark.parametrize("damage", ["no zip", "no json", "no record", "missing"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, damage: str) -> None:
    path = _records(tmp_path, ["no", "record"])
    if damage == "no zip":
        path.write_bytes(b"x" * 100)
    elif damage == "no json":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.json", "{")
    elif damage == "missing":
        path.unlink()
    with pytest.raises(InputError, match=r"all\.zip"):
        read([PILLOW], path)


@pytest.mark.parametrize("limit", ["LARGEST_RECORD", "LARGEST_FILE"])
def test_read_of_records_that_unpack_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(osv, limit, 1 << 20)
    path = tmp_path / "all.zip"
    path.write_bytes(zip_file({"a.json": b"{}", "b.json": b" " * UNPACKED}))
    with memory_below(16 << 20), pytest.raises(InputError, match=r"all\.zip.* more than"):
        read([PILLOW], path)


@pytest.mark.parametrize("way", ["bzip2", "understated"])
def test_read_of_records_packed_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(osv, "LARGEST_RECORD", 1 << 20)
    method = zipfile.ZIP_BZIP2 if way == "bzip2" else zipfile.ZIP_DEFLATED
    content = zip_file({"a.json": b" " * UNPACKED}, method)
    path = tmp_path / "all.zip"
    path.write_bytes(understated(content, "a.json"))
    with memory_below(16 << 20), pytest.raises(InputError, match=r"all\.zip"):
        read([PILLOW], path)


def test_apt_says_what_is_newer_and_what_is_a_security_fix(tmp_path: Path) -> None:
    (tmp_path / "packages").write_text(
        "ii  openssl 3.0.1\nii  same 1\nii  tzdata 2024a-0\nrc  gone 1\nii  libgcc-s1 12.1\n"
    )
    (tmp_path / "uris").write_text(
        "'http://x/debian-security/pool/o/openssl_3.0.2_amd64.deb' openssl_3.0.2_amd64.deb 1 S\n"
        "'http://x/debian-security/pool/s/same_1_all.deb' same_1_all.deb 1 SHA256:0\n"
        "'http://x/debian/pool/t/tzdata_2026a-0_all.deb' tzdata_1%3a2026a-0_all.deb 1 SHA256:0\n"
        "'http://x/debian/pool/main/s/security-libs_1_all.deb' security-libs_1_all.deb 1 SHA256:0\n"
    )
    assert [*read_updates(tmp_path)] == [
        Update("openssl", "3.0.1", "3.0.2", security=True),
        Update("tzdata", "2024a-0", "1:2026a-0", security=False),
        Update("security-libs", "", "1", security=False),
    ]
    (tmp_path / "uris").write_text("something else\n")
    with pytest.raises(CheckFailedError, match="something else"):
        [*read_updates(tmp_path)]


def _accepted(name: str, until: date) -> Accepted:
    return Accepted.model_validate({"id": name, "until": until, "reason": "no user input"})


#: One finding of it counts.
SCAN = Scan(
    "tf-2.2-cpu-debian",
    "sha256:1",
    "2026-11-25",
    tuple(match_findings([], {PILLOW: ("GHSA-1", "GHSA-2")}, [_accepted("GHSA-2", TODAY)], TODAY)),
    "OSV",
    (),
    (),
)


def test_what_is_accepted_does_not_count_until_its_day() -> None:
    updates = [Update("openssl", "1", "2", security=True), Update("git", "1", "2", security=False)]
    known: Known = {OPENSSL: ("DEBIAN-CVE-2024-1", "DEBIAN-CVE-2024-2"), PILLOW: ("GHSA-1",)}
    accepted = [_accepted("CVE-2024-1", TODAY), _accepted("GHSA-1", date(2026, 11, 24))]
    found = [*match_findings(updates, known, accepted, TODAY)]
    assert [(one.id, one.counts) for one in found] == [
        ("openssl", True),
        ("DEBIAN-CVE-2024-1", False),
        ("DEBIAN-CVE-2024-2", True),
        ("GHSA-1", True),
    ]
    assert "2026-11-24" in found[3].status
    assert found[0].fix == "2"


def test_parts_without_security_fixes_are_named(images: dict[str, Image]) -> None:
    def named(name: str, day: date = TODAY) -> list[str]:
        return [text.split()[0] for text in find_unsupported_parts(images[name], day)]

    assert named("tf-1.12-cpu-ubuntu") == ["Ubuntu", "Python", "TensorFlow"]
    assert named("tf-2.15-cpu-debian") == ["TensorFlow"]
    assert "Python" not in named("tf-1.12-cpu-ubuntu", date(2020, 1, 1))


def test_the_latest_scan_is_kept_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    save_scan(replace(SCAN, day="2026-11-24"), tmp_path)
    save_scan(SCAN, tmp_path)
    kept = read_scan("sha256:1", tmp_path)
    assert kept
    assert (kept.day, kept.findings) == (SCAN.day, SCAN.findings)
    (path,) = (tmp_path / "scans").iterdir()
    path.write_text("{")
    assert read_scan("sha256:1", tmp_path) is None


def test_sarif_has_what_counts() -> None:
    (run,) = make_sarif([SCAN], "1.0")["runs"]
    (result,) = run["results"]
    assert result["ruleId"] == "GHSA-1"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["GHSA-1"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "images/dockerfiles/tf-2.2-cpu-debian/Dockerfile"
    (run,) = make_sarif([replace(SCAN, image="tf-2.15-cpu-debian-arm64")], "1.0")["runs"]
    (result,) = run["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert (ROOT / uri).is_file(), "both platforms have one Dockerfile"
    assert "tf-2.15-cpu-debian-arm64" in result["message"]["text"]
