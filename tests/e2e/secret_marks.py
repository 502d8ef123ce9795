"""Secrets with a mark in them, and where in an image the mark is."""

import gzip
import io
import json
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from checkout import Checkout

from imgbuild.settings import load_settings

SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def marked_secrets(copy: Checkout, folder: Path) -> str:
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


def places_of(archive: IO[bytes], mark: bytes) -> Iterator[str]:
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


def require_unmarked(copy: Checkout, image: str, mark: str) -> None:
    """Fail if the mark is in a layer, the configuration or the history of an image, or in a log."""
    save = ["docker", "save", image]
    with subprocess.Popen(save, env=copy.environment, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert [*places_of(process.stdout, mark.encode())] == []
        process.stdout.read()  # what is left would end it by a signal
    assert process.returncode == 0
    assert mark not in copy.docker("image", "inspect", image).stdout
    assert mark not in copy.docker("history", "--no-trunc", image).stdout
    for log in copy.state.rglob("*.log"):
        assert mark not in log.read_text(encoding="utf-8")
