"""The arrow image of the engine → its sizes."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

from imgbuild.engine.client import Engine
from imgbuild.sizes.archive import SavedImage, SavedLayer, read_archive
from imgbuild.sizes.components import NAMES, by_component
from imgbuild.sizes.filesystem import FileSystem, StoredFile, Wasted
from imgbuild.sizes.store import SizeStore


@dataclass(frozen=True)
class MeasuredImage:
    """An image's bytes. All of them are in a component, or wasted."""

    image_id: str
    saved: SavedImage

    @property
    def layers(self) -> tuple[SavedLayer, ...]:
        """Its layers, the lowest first."""
        return self.saved.layers

    @property
    def size(self) -> int:
        """The bytes of the files of all layers."""
        return sum(self.layer_size(layer.diff_id) for layer in self.layers)

    def layer_size(self, diff_id: str) -> int:
        """Return the bytes of one layer's files."""
        return self.saved.contents[diff_id].size

    @cached_property
    def _files(self) -> FileSystem:
        return FileSystem([self.saved.contents[layer.diff_id] for layer in self.layers])

    @property
    def components(self) -> dict[str, int]:
        """The bytes that are seen in a container, by component."""
        total: Counter[str] = Counter()
        for of_layer in self.components_of_layers:
            total.update(of_layer)
        return {name: total[name] for name in NAMES if total[name]}

    @property
    def wasted(self) -> list[Wasted]:
        """The files that no container sees any more, in the order in which they went."""
        return self._files.wasted

    @property
    def waste(self) -> int:
        """The bytes of these files."""
        return sum(one.size for one in self.wasted)

    @cached_property
    def waste_of_layers(self) -> Counter[int]:
        """The bytes that each layer, by index, has written in vain."""
        found: Counter[int] = Counter()
        for one in self.wasted:
            found[one.written] += one.size
        return found

    @cached_property
    def components_of_layers(self) -> tuple[dict[str, int], ...]:
        """The bytes by component of each layer, without what it wrote in vain."""
        files: list[list[StoredFile]] = [[] for _ in self.layers]
        for file in self._files.files():
            files[file.layer].append(file)
        return tuple(by_component(of_layer) for of_layer in files)


def measure(
    image_id: str,
    name: str,
    engine: Engine,
    store: SizeStore,
    say: Callable[[str], None] = lambda _: None,
) -> MeasuredImage:
    """Return the sizes of an image, read from the engine unless ``store`` knows them.

    Raises:
        MachineError: the engine cannot be reached, or its archive cannot be read.

    """
    known = store.image(image_id)
    if known is None:
        say(f"reading {name}")
        with closing(engine.save(image_id)) as pieces:
            known = read_archive(pieces, name)
        store.keep(image_id, known)
    return MeasuredImage(image_id, known)
