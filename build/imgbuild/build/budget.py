"""Compare an image's size with the budget of its row in the matrix."""

from collections.abc import Iterable

from imgbuild.engine.types import HistoryEntry

#: How much larger an image may be than its budget, since packages of archives grow.
TOLERANCE_PERCENT = 5
#: How much more a containerd store measures, which counts blocks on disk instead of bytes.
#: Measured 2026-11-22 with the images tf-1.10-cpu-debian (10.0 %) and tf-2.2-cpu-debian (8.2 %).
BLOCKS_PERCENT = 11


def image_size(history: Iterable[HistoryEntry]) -> int:
    """Return the bytes of all layers, unpacked: what the two image stores agree upon best.

    The size that an image itself has includes the packed layers in a containerd store.
    """
    return sum(entry.size for entry in history)


def over_budget(size: int, budget: int | None, *, containerd_store: bool = False) -> str | None:
    """Return why an image of ``size`` bytes is too large; None if it is not, or has no budget."""
    allowed = TOLERANCE_PERCENT + (BLOCKS_PERCENT if containerd_store else 0)
    if budget is None or size * 100 <= budget * (100 + allowed):
        return None
    more = (size - budget) * 100 / budget
    return (
        f"it has {size / 1e6:.0f} MB, {more:.1f} % more than its budget of {budget / 1e6:.0f} MB; "
        f"{allowed} % is allowed. `imgbuild size` shows its layers; if it must be so large, raise "
        "the budget in its row of matrix.yaml"
    )
