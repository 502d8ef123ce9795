"""The budget of an image: the size that its row of the matrix agrees to. Pure."""

from imgbuild.matrix.images import Image

#: How much larger an image may be than its budget, since packages of archives grow.
TOLERANCE_PERCENT = 5


def exceeds(size: int, budget: int) -> bool:
    """Return whether ``size`` is more than the tolerance above ``budget``, both in bytes."""
    return size * 100 > budget * (100 + TOLERANCE_PERCENT)


def over_budget(image: Image, size: int) -> str | None:
    """Return why an image of ``size`` bytes is too large; None if it is not, or has no budget."""
    if image.budget is None or not exceeds(size, image.budget):
        return None
    return excess(size, image.budget)


def excess(size: int, budget: int) -> str:
    """Return what to say of an image that exceeds its budget."""
    more = (size - budget) * 100 / budget
    return (
        f"it has {size / 1e6:.0f} MB, {more:.1f} % more than its budget of {budget / 1e6:.0f} MB, "
        f"and {TOLERANCE_PERCENT} % is what may be. `imgbuild size` shows what takes the room; if "
        "it must be so large, raise the budget in its row of matrix.yaml"
    )
