"""What is given to a build as a secret is in none of its layers, labels or logs."""

import gzip
import io
import json
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

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


def _places(archive: IO[bytes], mark: bytes) -> Iterator[str]:
    """Yield each file with the mark of what ``docker save`` writes: layers, configuration, names.

    Layers are read one by one: what a later layer removes or replaces is in the image all the same.
    """
    with tarfile.open(fileobj=archive, mode="r|") as saved:
        for member in saved:
            found = saved.extractfile(member)
            if found is None:
                continue
            stream = io.BufferedReader(cast("io.RawIOBase", found))
            # A containerd store keeps layers packed.
            packed = stream.peek(2).startswith(b"\x1f\x8b")
            whole = gzip.GzipFile(fileobj=stream) if packed else stream
            before = b""
            while piece := whole.read(1 << 20):
                if mark in before + piece:
                    yield member.name
                    break
                before = piece[-len(mark) :]


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
    assert [*_places(saved, mark)] == ["a", "b"]


def test_secrets_are_used_and_left_behind(copy: Checkout, tmp_path: Path) -> None:
    mark = _marked_secrets(copy, tmp_path)
    # The build itself sees that they are there; the step is a new one, so nothing is cached.
    step = '. "$here/network.sh"'
    looks = "grep -q '^# mark ' /run/secrets/ca\ngrep -q mirror.invalid \"$NETRC\""
    seen = f"{step}\n{looks}\n# {tmp_path.name}"
    copy.edit("images/files/packages/install", step, seen)
    copy.run("build", "--tf", "1.10", "--no-test")
    name = f"{COPY_REPOSITORY}:1.10-cpu-debian"
    save = ["docker", "save", name]
    with subprocess.Popen(save, env=copy.environment, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert [*_places(process.stdout, mark.encode())] == []
        process.stdout.read()  # what is left would end it by a signal
    assert process.returncode == 0
    assert mark not in copy.docker("image", "inspect", name).stdout
    assert mark not in copy.docker("history", "--no-trunc", name).stdout
    for log in copy.state.rglob("*.log"):
        assert mark not in log.read_text(encoding="utf-8")
