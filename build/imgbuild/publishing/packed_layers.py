"""The layers of a push, packed by imgbuild: each once, whichever images have it."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.atomic import write_text
from imgbuild.caches.blobs import Blob, BlobStore, Packing, blob_of
from imgbuild.caches.protocol import CacheError
from imgbuild.caches.saved import SavedImage, keep_saved
from imgbuild.engine.protocol import Engine
from imgbuild.errors import MachineError
from imgbuild.registry.file_content import FileContent
from imgbuild.registry.protocol import Registry
from imgbuild.work_folder import work_folder


@dataclass(frozen=True)
class PackedLayers:
    """What the registry holds of layers, and files of what it lacks; threads share it.

    ``notes`` remembers what each layer was packed into, so that a later push of another image can
    ask the registry for it by HEAD. A file goes when it is sent.
    """

    registry: Registry
    store: BlobStore
    notes: Path
    #: What was packed here, by the layer.
    _made: dict[str, Blob] = field(default_factory=dict)
    #: Two images at once would pack twice what they share, on the same processors.
    _packing: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _sending: defaultdict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock), repr=False
    )

    def packed(
        self, engine: Engine, image_id: str, layers: Sequence[str], heard: Callable[[int], None]
    ) -> SavedImage:
        """Return an image's configuration, and every layer as the registry has or will get it.

        ``layers`` are the digests of their tar files. ``heard`` is told of the bytes that the
        engine gave so far; what it raises ends the packing.

        Raises:
            MachineError: the engine's answer is not understood, or there is no room for it.

        """
        with self._packing:
            known = {layer: blob for layer in layers if (blob := self._known(layer))}
            try:
                with closing(engine.save(image_id)) as pieces:
                    saved = keep_saved(_heard(pieces, heard), self.store, known)
            except CacheError as error:
                raise MachineError(f"{image_id} cannot be packed: {error}.") from error
            except OSError as error:
                raise MachineError(
                    f"{image_id} cannot be packed in {self.store.folder}: {error.strerror}. Free "
                    "space there, or push with --compression gzip, which needs none."
                ) from error
            self._made.update(saved.layers)
            return saved

    def send(self, layer: str, blob: Blob, told: Callable[[int], None]) -> None:
        """Send a packed layer, unless the registry has it; ``told`` as in `FileContent`."""
        path = self.store.path(blob)
        with self._sending[blob.digest]:
            if path.exists():  # else it is there already, or another image's push has sent it
                self.registry.put_file(FileContent(path, blob.digest, told))
                write_text(self._note(layer), json.dumps(blob.descriptor()) + "\n")
                path.unlink()

    def _known(self, layer: str) -> Blob | None:
        made = self._made.get(layer)
        if made and self.store.has(made):  # another image's push is about to send it
            return made
        try:
            blob = blob_of(json.loads(self._note(layer).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # none, or not whole
            return None
        return blob if self.registry.has_blob(blob.digest) else None

    def _note(self, layer: str) -> Path:
        return self.notes / f"{layer.removeprefix('sha256:')}.json"


@contextmanager
def packed_layers(registry: Registry, notes: Path, packing: Packing) -> Iterator[PackedLayers]:
    """Give them, with a folder for what is not sent yet; it goes with the block."""
    with work_folder("packing") as folder:
        yield PackedLayers(registry, BlobStore(folder, packing), notes / packing)


def _heard(pieces: Iterator[bytes], heard: Callable[[int], None]) -> Iterator[bytes]:
    count = 0
    for piece in pieces:
        count += len(piece)
        heard(count)
        yield piece
