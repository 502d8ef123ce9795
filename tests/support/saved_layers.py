"""Archives of layers as an engine saves them."""

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

STATUS = """\
Package: libc6
Status: install ok installed
Version: {version}
Description: a library
 Version: not this

Package: bash
Version: 5.2.15-2
"""
PLAIN: Mapping[str, Any] = {"mode": 0o644, "mtime": 1_793_491_200}


def layer(files: Mapping[str, bytes], **more: Any) -> bytes:
    """Return the tar file of a layer; ``more`` are attributes of all of its entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            for name, value in {**PLAIN, **more}.items():
                setattr(member, name, value)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def saved(layers: Iterable[bytes]) -> bytes:
    """Return the archive that an engine saves: blobs by their digest, the list of layers last."""
    blobs = {f"blobs/sha256/{sha256(one).hexdigest()}": one for one in layers}
    config = {"blobs/sha256/" + "c" * 64: b'{"config": {}}', "index.json": b"{}"}
    last = {"manifest.json": json.dumps([{"Layers": [*blobs]}]).encode()}
    return layer({**blobs, **config, **last})


def pieces(archive: bytes, size: int = 1000) -> Iterator[bytes]:
    return (archive[at : at + size] for at in range(0, len(archive), size))
