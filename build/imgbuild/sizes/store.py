"""What was measured before, by content: one file a layer and one an image. Pure but for files.

Neither a diff id nor an image id ever means something else, so nothing here becomes wrong. Removing
the folder only makes the images be read again.
"""

import gzip
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imgbuild.files import write_bytes
from imgbuild.sizes.archive import SavedImage, SavedLayer
from imgbuild.sizes.layer import Entry, Kind, Layer

#: Files of another format are not read. Raise it when what is found in a layer changes.
FORMAT = 1


@dataclass(frozen=True)
class SizeStore:
    """The measured layers. A file that is damaged, or is no such file, says nothing.

    Layers that were asked for stay in memory: the images of a family have many in common.
    """

    folder: Path
    _seen: dict[str, Layer] = field(default_factory=dict, repr=False, compare=False)

    def image(self, image_id: str) -> SavedImage | None:
        """Return an image if it and all its layers were measured before."""
        try:
            found = self._load(self._path("images", image_id))
            layers = tuple(SavedLayer(str(one), str(by)) for one, by in found["layers"])
        except (KeyError, TypeError, ValueError):
            return None
        contents: dict[str, Layer] = {}
        for diff_id in dict.fromkeys(layer.diff_id for layer in layers):
            content = self._layer(diff_id)
            if content is None:
                return None
            contents[diff_id] = content
        return SavedImage(layers, contents)

    def keep(self, image_id: str, image: SavedImage) -> None:
        """Remember an image and those of its layers that are not known yet."""
        for diff_id, layer in image.contents.items():
            if self._layer(diff_id) is None:
                self._seen[diff_id] = layer
                removed, opaque = list(layer.removed), list(layer.opaque)
                content = {"entries": layer.entries, "removed": removed, "opaque": opaque}
                self._write(self._path("layers", diff_id), content)
        layers = [[layer.diff_id, layer.made_by] for layer in image.layers]
        self._write(self._path("images", image_id), {"layers": layers})

    def _layer(self, diff_id: str) -> Layer | None:
        if diff_id not in self._seen:
            found = _layer(self._load(self._path("layers", diff_id)))
            if found is None:
                return None
            self._seen[diff_id] = found
        return self._seen[diff_id]

    def _path(self, kind: str, digest: str) -> Path:
        return self.folder / kind / f"{digest.removeprefix('sha256:')}.json.gz"

    def _load(self, path: Path) -> dict[str, Any]:
        """Return a file's content; gzip's checksum finds damage."""
        try:
            found = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, zlib.error, ValueError):
            return {}
        known = isinstance(found, dict) and found.get("format") == FORMAT
        return found if known and found.get("name") == path.name else {}

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        document = {"format": FORMAT, "name": path.name, **content}
        write_bytes(path, gzip.compress(json.dumps(document).encode(), 6, mtime=0))


def size_store(cache: Path) -> SizeStore:
    """Return what was measured before by this user, whose cache folder is given."""
    return SizeStore(cache / "sizes")


def _layer(found: dict[str, Any]) -> Layer | None:
    try:
        return Layer(
            tuple(_entry(*one) for one in found["entries"]),
            tuple(str(path) for path in found["removed"]),
            tuple(str(path) for path in found["opaque"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _entry(path: str, kind: str, size: object, link: str, owner: str) -> Entry:
    if not isinstance(size, int) or size < 0:
        raise ValueError(size)
    return Entry(str(path), Kind(kind), size, str(link), str(owner))
