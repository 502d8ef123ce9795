"""An image that the gate let through, with what its record will say of its suites. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import moving_tags
from imgbuild.plan.plan import PlanItem
from imgbuild.publishing.candidate import Candidate
from imgbuild.publishing.content import size_of
from imgbuild.publishing.record import Record, SuiteFound
from imgbuild.registry.manifest import Manifest


@dataclass(frozen=True)
class Approved:
    """An image of the engine whose report is green.

    ``report`` are its suites' verdicts as this machine remembers them; ``substitutes`` is what was
    published only by allowance, in words.
    """

    item: PlanItem
    image_id: str
    suites: tuple[SuiteFound, ...]
    report: Mapping[str, Any]
    substitutes: tuple[str, ...] = ()

    @property
    def image(self) -> Image:
        """The image of the matrix."""
        return self.item.image

    @property
    def name(self) -> str:
        """Its name in the matrix."""
        return self.image.name

    def record(self, release: str, tag: str, manifest: Manifest, published: str) -> Record:
        """Return the record of its publication; ``published`` is the time, in UTC."""
        image = self.image
        return Record(
            image=image.name,
            digest=manifest.digest,
            image_id=self.image_id,
            size=size_of(manifest),
            release=release,
            tag=tag,
            moving=moving_tags(image),
            input_digest=self.item.digest.total,
            variant=image.variant,
            stack=image.stack,
            pins={pin.component: pin.version for pin in image.pins},
            suites=self.suites,
            report=self.report,
            substitutes=self.substitutes,
            published=published,
        )


def approved(candidate: Candidate, allowed: tuple[str, ...]) -> Approved:
    """Return what the gate let through; ``allowed`` are its words on what was allowed.

    Of the report only the suites count that the image must have passed.
    """
    report = {suite: candidate.report[suite] for suite in sorted(candidate.keys)}
    found = tuple(_found(suite, entry) for suite, entry in report.items())
    return Approved(candidate.item, candidate.item.image_id or "", found, report, allowed)


def _found(suite: str, entry: Mapping[str, Any]) -> SuiteFound:
    skips = entry.get("skipped", ())
    reasons = tuple(dict.fromkeys(str(one["reason"]) for one in skips))
    return SuiteFound(suite, str(entry["verdict"]), int(entry["passed"]), len(skips), reasons)
