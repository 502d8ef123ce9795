"""The layers of an image, one over the other: which files are seen, and which bytes are waste."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from imgbuild.sizes.layer import Kind, Layer


@dataclass
class StoredFile:
    """The bytes of a file; ``path`` is its first name, ``names`` how many hard links it has.

    ``layer`` is the index of the layer that wrote it.
    """

    path: str
    size: int
    owner: str
    layer: int
    names: int = 1


class Wasted(NamedTuple):
    """Bytes that layer ``written`` has and that nobody sees since layer ``gone``.

    ``removed`` tells removed files from those that were overwritten.
    """

    path: str
    size: int
    written: int
    gone: int
    removed: bool


Folder = dict[str, "StoredFile | Folder"]


class FileSystem:
    """The file system after the layers applied so far; ``wasted`` is in the order it happened."""

    def __init__(self, layers: Sequence[Layer] = ()) -> None:
        self.wasted: list[Wasted] = []
        self._root: Folder = {}
        for index, layer in enumerate(layers):
            self._apply(layer, index)

    def files(self) -> Iterator[StoredFile]:
        """Yield every file that is seen and has bytes, once even if it has several names."""
        seen: set[int] = set()
        for file in _files(self._root):
            if file.size and id(file) not in seen:
                seen.add(id(file))
                yield file

    def _apply(self, layer: Layer, index: int) -> None:
        """Apply a layer. What it takes away is of lower layers, wherever it stands in its tar."""
        for path in layer.opaque:
            folder = self._find(path)
            if isinstance(folder, dict):
                self._drop(folder, index, removed=True)
                folder.clear()
        for path in layer.removed:
            parent, name = self._parent(path, index)
            self._drop(parent.pop(name, {}), index, removed=True)
        for entry in layer.entries:
            parent, name = self._parent(entry.path, index)
            if entry.kind is Kind.FOLDER:
                self._folder(parent, name, index)
                continue
            target = self._find(entry.link) if entry.kind is Kind.HARD_LINK else None
            if isinstance(target, StoredFile):
                target.names += 1
                new = target
            else:
                new = StoredFile(entry.path, entry.size, entry.owner, index)
            self._drop(parent.pop(name, {}), index, removed=False)
            parent[name] = new

    def _find(self, path: str) -> "StoredFile | Folder | None":
        found: StoredFile | Folder | None = self._root
        for part in path.split("/") if path else ():
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def _parent(self, path: str, index: int) -> tuple[Folder, str]:
        """Return the folder that a path lies in, made if a layer left it out, and its name."""
        *folders, name = path.split("/")
        here = self._root
        for part in folders:
            here = self._folder(here, part, index)
        return here, name

    def _folder(self, parent: Folder, name: str, index: int) -> Folder:
        found = parent.get(name)
        if isinstance(found, dict):
            return found
        if found is not None:
            self._drop(found, index, removed=False)
        made: Folder = {}
        parent[name] = made
        return made

    def _drop(self, gone: "StoredFile | Folder", index: int, *, removed: bool) -> None:
        for file in _files(gone):
            file.names -= 1
            if file.size and not file.names:
                self.wasted.append(Wasted(file.path, file.size, file.layer, index, removed))


def _files(top: "StoredFile | Folder") -> Iterator[StoredFile]:
    """Yield the files of a tree, one for each of its names; not recursive, for deep folders."""
    left = [top]
    while left:
        one = left.pop()
        if isinstance(one, StoredFile):
            yield one
        else:
            left += reversed(one.values())
