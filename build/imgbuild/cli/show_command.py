"""``imgbuild show``: every pin of an image with its source and reason, and the GPUs it serves."""

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from imgbuild.cli.options import JsonOption, ProjectOption, open_project, select, takes_selection
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image
    from imgbuild.matrix.model import Matrix

WIDTH = 80
INDENT = "    "
GPU_TITLE = (
    "GPUs by compute capability, and what TensorFlow has for them",
    f"{INDENT}(PTX only: the driver compiles it at first use, which takes minutes)",
)


@takes_selection()
def show(
    selection: Selection,
    as_json: JsonOption = False,
    project: ProjectOption = None,
) -> None:
    """Show every pin of an image (value, source, reason), and which GPUs it serves."""
    opened = open_project(project)
    shown = [described(image, opened.locks) for image in select(opened, selection)]
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
        return
    typer.echo("\n\n".join(image_text(image) for image in shown))


def described(image: "Image", locks: Path) -> dict[str, Any]:
    """Return the image's pins with sources and reasons, its locks, its GPUs, the broken rules."""
    from imgbuild.matrix.rules import broken_rules, pins_of
    from imgbuild.matrix.tags import planned_tags

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
        "gpu": _gpu_data(image) if image.cuda else None,
    }


def _pins(image: "Image", locks: Path) -> list[dict[str, Any]]:
    from imgbuild.dockerfile.conda import conda_packages
    from imgbuild.matrix.images import corrections

    corrected = {}
    if image.documented:
        corrected = {c.documented.component: c.corrected for c in corrections(image)}
    packages = {
        "python": [
            {"url": one.url, "sha256": one.sha256, "locked": one.sha256 is not None}
            for one in conda_packages(image, locks)
        ]
    }
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


def _gpu_data(image: "Image") -> dict[str, Any]:
    from imgbuild.matrix.gpus import gpu_support, unsupported_gpus

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


def _driver_source(matrix: "Matrix") -> str:
    """Return the source of the rule that judges the minimum drivers."""
    sources = (rule.source for rule in matrix.rules if rule.value == "cuda.driver")
    return next(sources, "matrix.yaml")


def image_text(image: dict[str, Any]) -> str:
    """Return an image as lines of at most 80 columns; URLs and sha256 are never broken."""
    lines = [image["name"], *(f"  is named {tag}" for tag in image["tags"])]
    lines += _published(image["published"])
    lines.append(f"  Python packages: {image['lock']}")
    for pin in image["pins"]:
        lines += [*_headline(pin, image), *_details(pin)]
    for broken in image["broken_rules"]:
        sentence = f"{broken['sentence']} What happens: {broken['otherwise']}."
        lines += ["", *_wrapped(sentence, "")]
    if image["gpu"]:
        lines += ["", *_gpu(image["gpu"])]
    return "\n".join(line.rstrip() for line in lines)


def _published(tags: dict[str, Any]) -> list[str]:
    moving = f"and as {', '.join(tags['moving'])}, which move" if tags["moving"] else ""
    return ["  is published as", f"{INDENT}{tags['immutable']}", *_wrapped(moving)]


def _headline(pin: dict[str, Any], image: dict[str, Any]) -> list[str]:
    version = image["mpi"] if pin["component"] == "mpi" else pin["version"]
    head = f"{pin['component']:<12} {version:<10}"
    line = f"{head} {pin['source']}"
    return [line] if len(line) <= WIDTH else [head, *_wrapped(pin["source"])]


def _details(pin: dict[str, Any]) -> list[str]:
    lines = [f"{INDENT}sha256 {pin['sha256']}"] if pin["sha256"] else []
    if pin["documented"]:
        gone = (
            "" if pin["documented_exists"] else ", which is not available: the corrected one stays"
        )
        lines += _wrapped(f"documented: {pin['documented']}{gone}")
    if pin["why"]:
        lines += _wrapped(f"why: {pin['why']}")
    if pin["corrected"]:
        other = pin["corrected"]
        reason = f" ({other['why']})" if other["why"] else ""
        lines += _wrapped(f"as documented; the family has {other['version']}{reason}")
    if pin["apt"]:
        lines += _wrapped(f"packages: {' '.join(pin['apt'])}")
    return [*lines, *_packages(pin["packages"])]


def _packages(packages: list[dict[str, Any]]) -> list[str]:
    unlocked = [one["url"] for one in packages if not one["locked"]]
    if not packages:
        return []
    locked = len(packages) - len(unlocked)
    count = f"{INDENT}{locked} of {len(packages)} packages have a recorded sha256"
    return [count, *(f"{INDENT}unlocked {url.rsplit('/', 1)[1]}" for url in unlocked)]


def _gpu(gpu: dict[str, Any]) -> list[str]:
    source = f"source: {gpu['minimum_driver_source']}"
    lines = [f"minimum driver {gpu['minimum_driver']}", *_wrapped(source), "", *GPU_TITLE]
    lines += [
        f"{INDENT}{g['generation']:<10} {g['capability']:<5} {g['service']:<15} {g['examples']}"
        for g in gpu["generations"]
    ]
    return [*lines, *_wrapped(gpu["not_served"])] if gpu["not_served"] else lines


def _wrapped(text: str, indent: str = INDENT) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
