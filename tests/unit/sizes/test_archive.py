"""Every shape of ``docker save`` gives the same layers, and a damaged one gives an error."""

from collections.abc import Callable, Iterator

import pytest
from hand_made import digest, docker_archive, oci_archive, old_archive, tar

from imgbuild.errors import MachineError
from imgbuild.sizes.archive import SavedImage, read_archive
from imgbuild.zstd import packer

BASE, EMPTY = tar(("a", b"12345")), tar()
TOP = tar((".wh.a", b""), ("b", b"1" * 2000))
LAYERS = (BASE, EMPTY, TOP, EMPTY)


def chunks(archive: bytes, size: int = 700) -> Iterator[bytes]:
    for start in range(0, len(archive), size):
        yield archive[start : start + size]
        yield b""


def sizes(image: SavedImage) -> list[tuple[str, int]]:
    return [(one.diff_id, image.contents[one.diff_id].size) for one in image.layers]


@pytest.mark.parametrize("save", [docker_archive, old_archive, oci_archive])
@pytest.mark.parametrize("size", [1, 700, 10**6])
def test_the_layers_in_their_order(save: Callable[..., bytes], size: int) -> None:
    image = read_archive(chunks(save(LAYERS), size), "app:1")
    assert sizes(image) == [
        (f"sha256:{digest(layer)}", count)
        for layer, count in zip(LAYERS, (5, 0, 2000, 0), strict=True)
    ]
    assert image.contents[f"sha256:{digest(TOP)}"].removed == ("a",)


def test_the_history_says_what_made_each_layer() -> None:
    image = read_archive(chunks(docker_archive((BASE, TOP), ("ADD base", "RUN b"))), "app:1")
    assert [layer.made_by for layer in image.layers] == ["ADD base", "RUN b"]


def test_a_history_that_does_not_fit_is_left_out() -> None:
    image = read_archive(chunks(docker_archive((BASE, TOP), ("ADD base",))), "app:1")
    assert [layer.made_by for layer in image.layers] == ["", ""]


@pytest.mark.parametrize("end", [0, 600, 3000, 5000])
def test_an_archive_that_ends_too_early_is_refused(end: int) -> None:
    with pytest.raises(MachineError, match=r"What the engine saves of app:1 cannot be read: "):
        read_archive(chunks(docker_archive(LAYERS)[:end]), "app:1")


def test_damage_inside_a_packed_layer_is_refused() -> None:
    with pytest.raises(MachineError, match="cannot be read"):
        read_archive(chunks(oci_archive(LAYERS, pack=b"\x1f\x8b\x08" + b"\0" * 600)), "app:1")


def test_an_archive_without_the_image_is_refused() -> None:
    for archive in (tar(("index.json", b'{"manifests": []}')), tar(("manifest.json", b"{broken"))):
        with pytest.raises(MachineError, match="cannot be read"):
            read_archive(chunks(archive), "app:1")


def _zstd(layer: bytes) -> bytes:
    packing = packer()
    return packing.compress(layer) + packing.flush()


def test_layers_packed_with_zstd() -> None:
    image = read_archive(chunks(oci_archive((BASE,), pack=_zstd(BASE))), "app:1")
    assert sizes(image) == [(f"sha256:{digest(BASE)}", 5)]


@pytest.mark.parametrize(
    "packed", [b"\x28\xb5\x2f\xfd" + b"\0" * 600, _zstd(BASE)[:-9] + b"\0" * 9, _zstd(BASE)[:-9]]
)
def test_damage_inside_zstd_is_refused(packed: bytes) -> None:
    with pytest.raises(MachineError, match="What the engine saves of app:1 cannot be read"):
        read_archive(chunks(oci_archive((BASE,), pack=packed)), "app:1")
