"""What ``imgbuild show`` knows of an image, as the values that ``--json`` prints."""

from pathlib import Path
from typing import Any

from imgbuild.dockerfile.conda import conda_packages
from imgbuild.matrix.gpus import gpu_support, unsupported_gpus
from imgbuild.matrix.images import Image, corrections
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rules import broken_rules, pins_of
from imgbuild.matrix.tags import planned_tags


def described(image: Image, locks: Path) -> dict[str, Any]:
    """Return the image's pins with sources and reasons, its locks, its GPUs, the broken rules."""
    return {
        **image.as_json(),
        "published": planned_tags(image).as_json(),
        "pins": _pins(image, locks),
        "lock": f"images/locks/{image.lock_name}",
        "as_documented": image.documented,
        "broken_rules": [
            {"rule": b.rule.name, "sentence": b.sentence, "otherwise": b.rule.otherwise}
            for b in broken_rules(image.matrix, pins_of(image))
        ],
        "gpu": _gpu(image) if image.cuda else None,
    }


def _pins(image: Image, locks: Path) -> list[dict[str, Any]]:
    corrected = {}
    if image.documented:
        corrected = {c.documented.component: c.corrected for c in corrections(image)}
    packages = {"python": [one.as_json() for one in conda_packages(image, locks)]}
    return [
        {
            "component": pin.component,
            "version": pin.version,
            "documented": pin.documented,
            "documented_exists": pin.documented_exists,
            "source": pin.source,
            "sha256": pin.sha256,
            "why": pin.why,
            "corrected": _correction(corrected.get(pin.component)),
            "packages": packages.get(pin.component, []),
            "apt": list(image.cuda.runtime) if image.cuda and pin.component == "cuda" else [],
        }
        for pin in image.pins
    ]


def _correction(pin: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a pin or nothing
    return {"version": pin.version, "why": pin.why} if pin else None


def _gpu(image: Image) -> dict[str, Any]:
    return {
        "minimum_driver": image.cuda.driver if image.cuda else None,
        "minimum_driver_source": _driver_source(image.matrix),
        "newest_capability": image.cuda.newest if image.cuda else None,
        "not_served": unsupported_gpus(image),
        "generations": [
            {
                "generation": generation.name,
                "capability": generation.capability,
                "service": str(support),
                "examples": generation.examples,
            }
            for generation, support in gpu_support(image)
        ],
    }


def _driver_source(matrix: Matrix) -> str:
    """Return the source of the rule that judges the minimum drivers."""
    sources = (rule.source for rule in matrix.rules if rule.value == "cuda.driver")
    return next(sources, "matrix.yaml")
