"""Scan an image with outdated packages: the archive's own lists tell, on a real engine."""

import json
import zipfile
from pathlib import Path

from imgbuild.core.project import Project
from imgbuild.net.repository import DOCKER_MANIFEST, descriptor
from imgbuild.net.repository_client import connect
from imgbuild.publish.record import Record, put_record
from support.checkout import ROOT, Bases, Checkout
from support.own_registry import own_registry

#: In place of the present versions; of the second, no newer one is a security fix.
OLD = {"openssl": "3.0.1-1", "libgcc-s1": "12.1.0-1"}


def test_an_image_with_old_packages_is_named_with_what_mends_it(
    checkout: Checkout, base: Bases, tag: str, tmp_path: Path
) -> None:
    whole = base("tf-2.2-cpu-debian")
    edits = "; ".join(
        f"/^Package: {name}$/,/^$/s/^Version: .*/Version: {version}/"
        for name, version in OLD.items()
    )
    container = checkout.printed("create", whole.tag, "sed", "-i", edits, "/var/lib/dpkg/status")
    try:
        checkout.printed("start", "--attach", container)
        checkout.printed("commit", container, tag)
    finally:
        checkout.docker("rm", "--force", container)
    records = tmp_path / "all.zip"
    affected = {"package": {"ecosystem": "PyPI", "name": "numpy"}, "versions": ["1.18.5"]}
    with zipfile.ZipFile(records, "w") as archive:
        archive.writestr("a.json", json.dumps({"id": "GHSA-made-up", "affected": [affected]}))
    sarif = tmp_path / "found.sarif"
    words = ("scan", tag, "--osv", str(records), "--sarif", str(sarif))
    (found,) = checkout.json(*words, code=1)
    findings = {one["id"]: one for one in found["findings"]}
    assert findings.keys() >= {"openssl", "GHSA-made-up"}
    assert findings["openssl"]["installed"] == OLD["openssl"]
    assert findings["openssl"]["fix"] > OLD["openssl"]
    assert "libgcc-s1" in found["other_updates"]
    assert any("TensorFlow 2.2.3" in text for text in found["end_of_life"])
    (run,) = json.loads(sarif.read_text())["runs"]
    assert {one["ruleId"] for one in run["results"]} == {*findings}
    # Nobody knows of more: where OSV cannot be asked, that is said.
    unreachable = ("--mirror", "osv=http://127.0.0.1:9/")
    (again,) = checkout.json(*unreachable, *words[:2], code=1)
    assert again["vulnerabilities"].startswith("not asked")
    assert [one["id"] for one in again["findings"]] == [
        one for one in findings if one != "GHSA-made-up"
    ]


def test_a_published_image_with_old_packages_is_to_be_built_again(
    base: Bases, checkout: Checkout, tmp_path: Path
) -> None:
    """By the packages that its record lists: nothing is pulled."""
    name = "tf-2.2-cpu-debian"
    base(name)
    digest, newest = checkout.plan("2.2")["input_digest"], {"base-files": "99"}
    settings = Project(ROOT).settings
    with own_registry(tmp_path / "registry") as registry:
        repository = f"{registry.host}/ml/tensorflow"
        client = connect(repository, settings, print, "--to")
        for number, system in enumerate((newest, OLD), 1):
            content = json.dumps({"number": number}).encode()
            config = descriptor("application/vnd.docker.container.image.v1+json", content)
            client.put_blob(content)
            document = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config}
            text = json.dumps({**document, "layers": []}).encode()
            tag, release = f"{name}-20261120.{number}", f"20261120.{number}"
            client.put_manifest(tag, text, DOCKER_MANIFEST)
            client.put_manifest(f"input-{digest.removeprefix('sha256:')}", text, DOCKER_MANIFEST)
            image = client.manifest(tag)
            assert image
            facts = (name, image.digest, image.config_digest, 1, release, tag, (), digest)
            published = f"2026-11-20T0{number}:00:00Z"
            record = Record(*facts, "cpu", "debian", {}, {}, (), published, system=system)
            put_record(client, record, image)
            words = ("matrix", name, "--from", repository)
            listed = json.loads(checkout.run(*words, "--outdated").stdout)
            if number == 1:
                assert listed == []
            else:
                (found,) = listed
                assert "openssl" in found["reason"]
                assert "libgcc-s1" not in found["reason"], "its update is no security fix"
            assert json.loads(checkout.run(*words, "--missing").stdout) == []
        client.close()
