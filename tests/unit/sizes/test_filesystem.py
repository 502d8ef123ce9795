"""Layers one over the other: what is seen, and what was written in vain, each counted by hand."""

import io

from hand_made import Member, folder, hard_link, symlink, tar

from imgbuild.sizes.filesystem import FileSystem, Wasted
from imgbuild.sizes.layer import read_layer


def stack(*layers: list[Member]) -> FileSystem:
    return FileSystem([read_layer(io.BytesIO(tar(*members))) for members in layers])


def seen(system: FileSystem) -> dict[str, tuple[int, int]]:
    return {file.path: (file.size, file.layer) for file in system.files()}


def test_overwritten_and_removed_bytes_are_waste() -> None:
    system = stack(
        [folder("d"), ("d/a", b"1234567"), ("d/b", b"12345"), ("keep", b"1")],
        [("d/a", b"12"), ("d/.wh.b", b"")],
        [("d/a", b"123")],
    )
    assert seen(system) == {"d/a": (3, 2), "keep": (1, 0)}
    assert system.wasted == [
        Wasted("d/b", 5, 0, 1, removed=True),
        Wasted("d/a", 7, 0, 1, removed=False),
        Wasted("d/a", 2, 1, 2, removed=False),
    ]


def test_a_removed_folder_takes_what_lies_in_it_along() -> None:
    system = stack([("d/e/a", b"12"), ("d/b", b"123"), ("de", b"1")], [(".wh.d", b"")])
    assert seen(system) == {"de": (1, 0)}
    assert sorted((one.path, one.size) for one in system.wasted) == [("d/b", 3), ("d/e/a", 2)]


def test_an_opaque_folder_hides_the_layers_below_and_not_its_own() -> None:
    system = stack(
        [("d/a", b"12"), ("d/sub/b", b"123"), ("x", b"1")],
        [("d/new", b"1234"), ("d/.wh..wh..opq", b"")],  # the whiteout stands behind
    )
    assert seen(system) == {"d/new": (4, 1), "x": (1, 0)}
    assert sum(one.size for one in system.wasted) == 5
    assert all(one.removed for one in system.wasted)


def test_a_whiteout_does_not_remove_what_its_own_layer_writes() -> None:
    system = stack([("a", b"12")], [("a", b"123"), (".wh.a", b"")])
    assert seen(system) == {"a": (3, 1)}
    assert [(one.path, one.size) for one in system.wasted] == [("a", 2)]


def test_what_has_another_hard_link_is_not_gone() -> None:
    first: list[Member] = [("a", b"12345"), hard_link("b", "a")]
    system = stack(first, [(".wh.a", b"")])
    assert (seen(system), system.wasted) == ({"a": (5, 0)}, [])
    system = stack(first, [(".wh.a", b"")], [("b", b"1")])
    assert seen(system) == {"b": (1, 2)}
    assert system.wasted == [Wasted("a", 5, 0, 2, removed=False)]


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_file() -> None:
    system = stack([("d/a", b"12"), ("f", b"123")], [("d", b"1"), folder("f"), ("f/b", b"1")])
    assert seen(system) == {"d": (1, 1), "f/b": (1, 1)}
    assert [(one.path, one.size, one.removed) for one in system.wasted] == [
        ("d/a", 2, False),
        ("f", 3, False),
    ]


def test_links_and_folders_waste_nothing() -> None:
    system = stack(
        [folder("d"), symlink("l", "d"), hard_link("h", "nowhere"), ("a", b"1")],
        [symlink("l", "e"), folder("d"), (".wh.nothing", b""), ("none/.wh..wh..opq", b"")],
    )
    assert (seen(system), system.wasted) == ({"a": (1, 0)}, [])


def test_a_very_deep_folder_is_no_harm() -> None:
    deep = "/".join(["d"] * 3000)
    system = stack([(f"{deep}/a", b"12")], [(".wh.d", b"")])
    assert [one.size for one in system.wasted] == [2]
