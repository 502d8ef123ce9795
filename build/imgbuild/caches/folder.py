"""A cache in a folder: blobs shared by all images, and one small JSON file an entry."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imgbuild.caches.archive import CONFIG, LoadableImage, Part, archive
from imgbuild.caches.blobs import Blob, BlobStore, blob_of
from imgbuild.caches.protocol import CacheError, Kind, WantedImage
from imgbuild.caches.saved import diff_ids, keep_saved, labels_of
from imgbuild.caches.stream import as_file
from imgbuild.engine.client import Engine
from imgbuild.files import write_text

_FILE = "application/octet-stream"


@dataclass(frozen=True)
class FolderCache:
    """``blobs/sha256``, ``images/<input digest>.json`` and ``files/<kind>-<key>.json``.

    What is read is compared with its sha256; an entry that is not whole is as good as none, and
    ``say`` tells it. A folder that does not exist is an empty cache.
    """

    folder: Path
    engine: Engine
    say: Callable[[str], None]
    _right: set[Blob] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The folder's path."""
        return str(self.folder)

    def has_image(self, image: WantedImage) -> bool:
        """Return whether all pieces are there, going by their sizes."""
        blobs = self._blobs(self._image_path(image))
        return bool(blobs) and all(self._store.has(blob) for blob in blobs)

    def restore(self, images: Sequence[WantedImage]) -> Sequence[WantedImage]:
        """Load all of the images at once: what they share is sent once."""
        found = [(image, self._loadable(image)) for image in images]
        whole = [(image, loadable) for image, loadable in found if loadable]
        if whole:
            self.engine.load(as_file(archive([loadable for _, loadable in whole])))
        return [image for image, _ in whole]

    def save_image(self, image: WantedImage, image_id: str) -> None:
        """Keep an image of the engine; layers that another image has are not packed again."""
        known = dict(self._known_layers())
        with contextlib.closing(self.engine.save(image_id)) as pieces:
            saved = keep_saved(pieces, self._store, known)
        if not image.fits(saved.labels):
            raise CacheError(f"the engine saves another image than {image.name}")
        config = self._store.add(as_file([saved.config]), CONFIG)
        layers = [
            {**blob.descriptor(), "diffId": diff_id} for diff_id, blob in saved.layers.items()
        ]
        entry = {"name": image.name, "config": config.descriptor(), "layers": layers}
        write_text(self._image_path(image), json.dumps(entry, indent=1) + "\n")

    def release(self, image_id: str) -> None:
        """Do nothing: images are loaded without a name."""

    def read(self, kind: Kind, key: str, folder: Path) -> Path | None:
        """Copy a kept file, if it is whole."""
        path = self._file_path(kind, key)
        blobs = self._blobs(path)
        if not blobs:
            return None
        (blob,) = blobs
        if not self._store.is_whole(blob):
            self._damaged(path, f"the {kind} {key}")
            return None
        target = folder / Path(str(self._entry(path)["name"])).name
        shutil.copyfile(self._store.path(blob), target)
        return target

    def write(self, kind: Kind, key: str, file: Path) -> None:
        """Keep a file."""
        with file.open("rb") as content:
            blob = self._store.add(content, _FILE)
        old = self._blobs(self._file_path(kind, key))
        entry = {"name": file.name, "file": blob.descriptor()}
        write_text(self._file_path(kind, key), json.dumps(entry, indent=1) + "\n")
        for other in {*old} - {blob}:  # small files are not shared
            self._store.path(other).unlink(missing_ok=True)

    def has(self, kind: Kind, key: str) -> bool:
        """Return whether the file is there, going by its size."""
        blobs = self._blobs(self._file_path(kind, key))
        return bool(blobs) and all(self._store.has(blob) for blob in blobs)

    @property
    def _store(self) -> BlobStore:
        return BlobStore(self.folder / "blobs" / "sha256")

    def _image_path(self, image: WantedImage) -> Path:
        return self.folder / "images" / f"{image.key}.json"

    def _file_path(self, kind: Kind, key: str) -> Path:
        return self.folder / "files" / f"{kind}-{key}.json"

    def _loadable(self, image: WantedImage) -> LoadableImage | None:
        path = self._image_path(image)
        if not path.exists():
            return None
        blobs = self._blobs(path)
        damaged = [blob for blob in blobs if not self._is_right(blob)]
        loadable = self._assembled(image, blobs) if blobs and not damaged else None
        if loadable is None:
            self._damaged(path, image.name)
        return loadable

    def _assembled(self, image: WantedImage, blobs: Sequence[Blob]) -> LoadableImage | None:
        """Return the image, if it says of itself that it is this one."""
        config, *layers = blobs
        content = self._store.path(config).read_bytes()
        if not image.fits(labels_of(content)) or len(diff_ids(content)) != len(layers):
            return None
        parts = tuple(Part(layer, self._store.path(layer)) for layer in layers)
        return LoadableImage(Part(config, content), parts)

    def _is_right(self, blob: Blob) -> bool:
        """Return whether a blob is whole; one that images share is read once."""
        if blob not in self._right and self._store.is_whole(blob):
            self._right.add(blob)
        return blob in self._right

    def _damaged(self, path: Path, what: str) -> None:
        self.say(f"The cache {self.name} holds {what}, but not whole; it is made again.")
        with contextlib.suppress(OSError):  # it may be a cache that cannot be written
            path.unlink()

    def _known_layers(self) -> Iterator[tuple[str, Blob]]:
        for path in (self.folder / "images").glob("*.json"):
            blobs = self._blobs(path)
            if blobs:
                ids = [layer.get("diffId", "") for layer in self._entry(path)["layers"]]
                for diff_id, blob in zip(ids, blobs[1:], strict=True):
                    if self._store.has(blob):
                        yield diff_id, blob

    def _blobs(self, path: Path) -> list[Blob]:
        """Return what an entry is made of, the configuration first; nothing if it is damaged."""
        try:
            entry = self._entry(path)
            named = [entry["file"]] if "file" in entry else [entry["config"], *entry["layers"]]
            return [blob_of(one) for one in named]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def _entry(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
