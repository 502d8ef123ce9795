"""A file as an image of one layer: what a registry can keep of it."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from imgbuild.caches.archive import CONFIG, LoadableImage, archive, part_of
from imgbuild.caches.protocol import CacheError
from imgbuild.inputs.oci_layout import short_id

#: What such an image says of itself.
LABEL = "imgbuild.cache"
#: Its time of creation, always the same, so that the same file is the same image.
_CREATED = "1980-01-02T00:00:00Z"
CREATED_SECONDS = int(datetime.fromisoformat(_CREATED).timestamp())
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def small_image(file: Path, reference: str, labels: Mapping[str, str]) -> Iterator[bytes]:
    """Yield an archive for ``docker load`` that holds the file; the same file, the same bytes."""
    layer = _tar(file)
    diff_id = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": _CREATED,
        "config": {"Labels": dict(labels)},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created_by": f"imgbuild: {file.name} {short_id(diff_id)}"}],
    }
    text = json.dumps(config, sort_keys=True).encode()
    return archive([LoadableImage(part_of(text, CONFIG), (part_of(layer, _LAYER),), reference)])


def unpack(layer: BinaryIO, folder: Path) -> Path:
    """Write the only file of a layer into ``folder``.

    Raises:
        CacheError: it holds no file, several, or one with a path.

    """
    try:
        with tarfile.open(fileobj=layer) as tar:
            (member,) = tar.getmembers()
            content = tar.extractfile(member)
            if content is None or Path(member.name).name != member.name:
                raise CacheError(f"it holds {member.name!r} in place of a file")
            target = folder / member.name
            with target.open("wb") as out:
                shutil.copyfileobj(content, out)
            return target
    except (tarfile.TarError, ValueError) as error:
        raise CacheError(f"it is no image of one file: {error}") from error


def _tar(file: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo(file.name)
        info.size, info.mode = file.stat().st_size, 0o644
        with file.open("rb") as content:
            tar.addfile(info, content)
    return out.getvalue()
