"""What hatchling asks this project: version, addresses, and what packages hold beside the code.

A wheel brings the family of images as `imgbuild/family`, with the commit that it is of. An editable
install brings none, since its checkout has the family. `hatch-vcs` would give the version alone,
for four more packages in every environment; the commit is needed either way.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "build"))

from imgbuild.core.project import PARTS, REVISION  # noqa: E402

_DESCRIBED = re.compile(
    r"v(?P<release>\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?)(?:-(?P<count>\d+)-(?P<commit>g\w+))?"
)


def version() -> str:
    """Return the release of a tag such as v1.2.0, 1.2.0.post3+gCOMMIT after it, or 0+gCOMMIT.

    0+unknown outside git. A package of the sources carries its version; this is not called then.
    """
    found = _DESCRIBED.fullmatch(_git("describe", "--tags", "--match=v[0-9]*"))
    if found is None:
        commit = _git("rev-parse", "--short", "HEAD")
        return f"0+g{commit}" if commit else "0+unknown"
    after = found["count"] and f".post{found['count']}+{found['commit']}"
    return f"{found['release']}{after or ''}"


class UrlsHook(MetadataHookInterface):
    """Names the repository whose workflow makes the package, which may be a fork."""

    def update(self, metadata: dict[str, Any]) -> None:
        server, name = map(os.environ.get, ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"))
        if server and name:
            source = f"{server}/{name}"
            metadata["urls"] = {
                "Source": source,
                "Documentation": f"{source}/tree/main/docs",
                "Changes": f"{source}/blob/main/CHANGELOG.md",
                "Issues": f"{source}/issues",
            }


class FamilyHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the family to a wheel, and its commit to wheels and source distributions."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        folder, parts = ("imgbuild/family/", PARTS) if self.target_name == "wheel" else ("", ())
        included = {str(ROOT / part): f"{folder}{part}" for part in parts}
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(_revision())
        included[file.name] = f"{folder}{REVISION}"
        build_data["force_include"] |= included
        self._file = Path(file.name)

    def finalize(self, version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        if version != "editable":
            self._file.unlink()


def _revision() -> str:
    """Return the commit, with ``-dirty`` if files differ; nothing outside git."""
    packaged = ROOT / REVISION
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    changed = _git("status", "--porcelain")
    return _git("rev-parse", "HEAD") + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    """Return what git says of this checkout; nothing if it is none, or there is no git."""
    if not (ROOT / ".git").exists():  # a repository around it has other tags and commits
        return ""
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
