"""Scan an image with outdated packages: the archive's own lists tell, on a real engine."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

from checkout import Base, Checkout

#: In place of the present versions; of the second, no newer one is a security fix.
OLD = {"openssl": "3.0.1-1", "libgcc-s1": "12.1.0-1"}


def test_an_image_with_old_packages_is_named_with_what_mends_it(
    checkout: Checkout, base: Callable[[str], Base], tag: str, tmp_path: Path
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
    words = ("scan", "--image", tag, "--osv", str(records), "--sarif", str(sarif))
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
    (again,) = checkout.json(*unreachable, *words[:3], code=1)
    assert again["vulnerabilities"].startswith("not asked")
    assert [one["id"] for one in again["findings"]] == [
        one for one in findings if one != "GHSA-made-up"
    ]
