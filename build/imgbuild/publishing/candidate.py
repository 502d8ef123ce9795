"""What could be published: all that the gate looks at, gathered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imgbuild.build.context import BuildContext
from imgbuild.engine.types import StoredImage
from imgbuild.plan.plan import PlanItem


@dataclass(frozen=True)
class Candidate:
    """What could be published: the plan, the engine's image, and what its suites found.

    ``report`` is what the :class:`~imgbuild.suites.store.ReportStore` remembers of this image id.
    ``keys`` are those of the suites that the image must have passed, as
    :func:`~imgbuild.suites.catalog.suite_keys` makes them.
    """

    item: PlanItem
    stored: StoredImage | None
    report: Mapping[str, Any]
    keys: Mapping[str, str]


def candidate_of(item: PlanItem, context: BuildContext) -> Candidate:
    """Return the engine's image of a plan item, and what is remembered of it.

    Raises:
        InputError: the image's lock is missing or damaged.
        MachineError: the engine does not answer.

    """
    return Candidate(
        item,
        context.engine.inspect(item.image_id) if item.image_id else None,
        context.store.document(item.image_id) if item.image_id else {},
        context.suite_keys(item.image),
    )
