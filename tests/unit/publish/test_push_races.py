"""Two pushes of different images at once, of which each may be killed before any request.

A fifth of all pairs of moments, with each moment of either push; tests/fuzz has them all.
"""

import pytest

from imgbuild.matrix.images import Image
from support.memory_registry import MemoryRegistry
from support.paused_push import KILLS, MANY, race, request_counts, shared_signatures
from support.push_bench import NAME
from support.signed_push_bench import FakeSigner


@pytest.mark.parametrize("kills", KILLS)
def test_immutable_tag_never_moves(images: dict[str, Image], kills: str) -> None:
    length, _ = request_counts(images[NAME])
    assert 20 < length < MANY
    for before in range(length):
        for meanwhile in range(before % 5, length, 5):
            race(images[NAME], before, meanwhile, kills)


def test_fake_signer_is_shared() -> None:
    registry = MemoryRegistry()
    first, second = FakeSigner(registry), FakeSigner(registry)
    first.signed = second.signed = shared_signatures(registry)
    first.sign("a@sha256:b", {})
    second.require_signature("a@sha256:b")
