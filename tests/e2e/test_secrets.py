"""What is given to a build as a secret is in none of its layers, labels or logs."""

import json
import uuid
from pathlib import Path

from checkout import COPY_REPOSITORY, Checkout

from imgbuild.settings import load_settings

SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def _marked_secrets(copy: Checkout, folder: Path) -> str:
    """Give the copy a CA bundle and login data with a mark in them; return the mark."""
    mark = uuid.uuid4().hex
    settings = copy.root / "imgbuild.local.yaml"
    before = load_settings(settings)
    bundle = folder / "ca.pem"
    text = Path(before.ca_bundle or SYSTEM_BUNDLE).read_text(encoding="ascii")
    bundle.write_text(f"{text}# mark {mark}\n", encoding="ascii")
    netrc = folder / "netrc"
    netrc.write_text(f"machine mirror.invalid login me password {mark}\n", encoding="ascii")
    after = before.model_copy(update={"ca_bundle": str(bundle), "netrc": str(netrc)})
    document = after.model_dump(mode="json", by_alias=True, exclude_none=True)
    settings.write_text(json.dumps(document), encoding="ascii")  # JSON is YAML
    return mark


def test_secrets_are_used_and_left_behind(copy: Checkout, tmp_path: Path) -> None:
    mark = _marked_secrets(copy, tmp_path)
    # The build itself sees that they are there; the step is a new one, so nothing is cached.
    step = ". /run/network.sh"
    looks = "grep -q '^# mark ' /run/secrets/ca.pem\ngrep -q mirror.invalid \"$NETRC\""
    seen = f"{step}\n{looks}\n# {tmp_path.name}"
    copy.edit("images/templates/partials/packages.j2", step, seen)
    copy.run("build", "--tf", "1.10", "--no-test")
    name = f"{COPY_REPOSITORY}:1.10-cpu-debian"
    search = f"grep -rlF {mark} / --exclude-dir=proc --exclude-dir=sys"
    found = copy.docker("run", "--rm", name, "sh", "-c", search)
    assert (found.returncode, found.stdout) == (1, ""), found.stdout + found.stderr
    assert mark not in copy.docker("image", "inspect", name).stdout
    assert mark not in copy.docker("history", "--no-trunc", name).stdout
    for log in copy.state.rglob("*.log"):
        assert mark not in log.read_text(encoding="utf-8")
