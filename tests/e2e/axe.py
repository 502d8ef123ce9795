"""axe-core, which finds what keeps people with a screen reader or a keyboard from using a page.

It is fetched by npm, in one version whose content is known, since it is larger than what this
repository keeps of others.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from browser import Browser

PACKAGE = "axe-core@4.14.1"
#: What the registry calls `dist.integrity`: the sha512 of the package.
INTEGRITY = (
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def fetch_axe(folder: Path) -> str:
    """Return axe-core's script; AssertionError if it is not the one that is known."""
    assert shutil.which("npm"), "no npm on PATH: `make browser` installs it"
    command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"npm cannot fetch {PACKAGE}: {done.stderr}"
    (archive,) = folder.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert found == INTEGRITY, f"{archive.name} has the sha512 {found}"
    with tarfile.open(archive) as package:
        member = package.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode("utf-8")


def violations(browser: Browser, axe: str) -> list[str]:
    """Return what axe has against the page, each with the elements that it means."""
    found = browser.run(f"{axe};\nreturn axe.run(document, {json.dumps(RULES)});")
    assert len(found["passes"]) > 20, "axe did not look at the page"
    return [_described(one) for one in found["violations"]]


def _described(violation: dict[str, Any]) -> str:
    nodes = [f"{node['target']}: {node['failureSummary']}" for node in violation["nodes"][:3]]
    return "\n  ".join([f"{violation['id']}: {violation['help']}", *nodes])
