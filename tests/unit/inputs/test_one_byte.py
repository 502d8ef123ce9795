"""A fetched folder of which one byte was changed, or one file is a link: no build takes that."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.inputs.fetched import Listing, offline_contexts
from support.fetched_folder import dest, image, made, open_dest

__all__ = ["dest", "image", "made", "open_dest"]


Open = Callable[[], dict[str, Listing]]


def _taken(opened: Open, dest: Path, cache: Path) -> Mapping[str, bytes] | None:
    """Return every file that a build would take, by its place; None where it is refused."""
    try:
        (listing,) = opened().values()
        contexts = {**offline_contexts(listing, dest, cache)}
        contexts["base"] = listing.base_folder(dest)
    except InputError:
        return None
    return {
        f"{name}/{path.relative_to(folder)}": path.read_bytes()
        for name, folder in contexts.items()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _files(folder: Path) -> list[Path]:
    """Return all that is fetched: neither listings, which say what that is, nor locks."""
    own = [path for path in folder.rglob("[!.]*") if path.is_file()]
    return [path for path in own if path.parent.name != "images"]


@pytest.mark.parametrize("place", [0.0, 0.5, 1.0, None], ids=["first", "middle", "last", "link"])
def test_one_changed_byte_reaches_no_build(
    open_dest: Open,
    dest: Path,
    tmp_path: Path,
    place: float | None,
) -> None:
    """Nor does another file of this machine, by a link."""
    (other := tmp_path / "other").write_text("of this machine")
    whole = _taken(open_dest, dest, tmp_path / "cache")
    assert whole
    for path in _files(dest):
        good = path.read_bytes()
        if place is None:
            path.unlink()
            path.symlink_to(other)
        else:
            content = bytearray(good)
            content[int((len(content) - 1) * place)] ^= 1
            path.write_bytes(content)  # of the file that the cache has, too: it is linked
        assert _taken(open_dest, dest, tmp_path / "cache") is None, path
        path.unlink()
        path.write_bytes(good)
        assert _taken(open_dest, dest, tmp_path / "cache") == whole
