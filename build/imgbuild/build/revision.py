"""Which commit of the checkout an image was built from."""

import subprocess
from pathlib import Path


def git_revision(root: Path) -> str | None:
    """Return the commit of the checkout, with ``-dirty`` if files differ; None outside git."""
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        return None
    return f"{head}-dirty" if _git(root, "status", "--porcelain") else head


def _git(root: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
