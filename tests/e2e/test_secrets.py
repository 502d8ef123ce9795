"""What is given to a build as a secret is in none of its layers, labels or logs."""

import gzip
import io
import tarfile
from pathlib import Path

from checkout import COPY_REPOSITORY, Checkout
from secret_marks import marked_secrets, places_of, require_unmarked


def _layer(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        layer.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_a_secret_that_a_later_layer_removes_is_found() -> None:
    mark = b"0123456789abcdef"
    # In a packed layer, and where two pieces that are read meet.
    secret = _layer("root/.netrc", b"x" * ((1 << 20) - 512 - 8) + mark)
    layers = {"a": gzip.compress(secret), "b": secret, "c": _layer("root/.wh..netrc", b"")}
    saved = io.BytesIO()
    with tarfile.open(fileobj=saved, mode="w") as archive:
        for name, content in layers.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    saved.seek(0)
    assert [*places_of(saved, mark)] == ["a", "b"]


def test_secrets_are_used_and_left_behind(copy: Checkout, tmp_path: Path) -> None:
    mark = marked_secrets(copy, tmp_path)
    # The build itself sees that they are there; the step is a new one, so nothing is cached.
    step = '. "$here/network.sh"'
    looks = "grep -q '^# mark ' /run/secrets/ca\ngrep -q mirror.invalid \"$NETRC\""
    seen = f"{step}\n{looks}\n# {tmp_path.name}"
    copy.edit("images/files/packages/install", step, seen)
    copy.run("build", "--tf", "1.10", "--no-test")
    name = f"{COPY_REPOSITORY}:1.10-cpu-debian"
    require_unmarked(copy, name, mark)
