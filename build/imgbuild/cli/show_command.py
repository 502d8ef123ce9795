"""``imgbuild show``: every pin of an image with its source and reason, and the GPUs it serves."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from imgbuild.cli.options import (
    JsonOption,
    ProjectOption,
    open_project,
    print_json,
    select,
    takes_selection,
)
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image
    from imgbuild.matrix.model import Cuda
    from imgbuild.matrix.pins import ResolvedPin

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
        print_json(shown)
    else:
        typer.echo("\n\n".join(map(image_text, shown)))


def described(image: "Image", locks: Path) -> dict[str, Any]:
    """Return the image's pins with sources and reasons, its locks, its GPUs, the broken rules."""
    from imgbuild.matrix.images import corrections
    from imgbuild.matrix.rules import broken_rules
    from imgbuild.matrix.tags import planned_tags

    corrected = {
        component: {"version": pin.version, "why": pin.why}
        for component, pin in corrections(image).items()
    }
    return {
        **image.as_json(),
        "published": planned_tags(image).as_json(),
        "pins": [_pin(image, pin, corrected.get(pin.component), locks) for pin in image.pins],
        "lock": f"images/locks/{image.lock_name}",
        "as_documented": image.documented,
        "broken_rules": [
            {"rule": b.rule.name, "sentence": b.sentence, "otherwise": b.rule.otherwise}
            for b in broken_rules(image.matrix, image.keys)
        ],
        "gpu": _gpu_data(image, image.cuda) if image.cuda else None,
    }


def _pin(
    image: "Image", pin: "ResolvedPin", corrected: dict[str, Any] | None, locks: Path
) -> dict[str, Any]:
    from imgbuild.dockerfile.conda import conda_packages

    entries = conda_packages(pin.version, image.python, locks)
    packages = entries if pin.component == "python" else ()
    return {
        "component": pin.component,
        "version": pin.version,
        "documented": pin.documented,
        "documented_exists": pin.documented_exists,
        "source": pin.source,
        "sha256": pin.sha256,
        "why": pin.why,
        "corrected": corrected,
        "packages": [
            {"url": one.url, "sha256": one.sha256, "locked": one.sha256 is not None}
            for one in packages
        ],
        "apt": list(image.cuda.runtime) if image.cuda and pin.component == "cuda" else [],
    }


def _gpu_data(image: "Image", cuda: "Cuda") -> dict[str, Any]:
    from imgbuild.matrix.gpus import gpu_support, unsupported_gpus

    # The rule that judges the minimum drivers has their source.
    sources = (rule.source for rule in image.matrix.rules if rule.value == "cuda.driver")
    return {
        "minimum_driver": cuda.driver,
        "minimum_driver_source": next(sources, "matrix.yaml"),
        "newest_capability": cuda.newest,
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


def image_text(image: dict[str, Any]) -> str:
    """Return an image as lines of at most 80 columns; URLs and sha256 are never broken."""
    tags = image["published"]
    moving = f"and as {', '.join(tags['moving'])}, which move" if tags["moving"] else ""
    lines = [image["name"], *(f"  is named {tag}" for tag in image["tags"])]
    lines += ["  is published as", f"{INDENT}{tags['immutable']}", *_wrapped(moving)]
    lines.append(f"  Python packages: {image['lock']}")
    for pin in image["pins"]:
        lines += _pin_lines(pin, image["mpi"])
    for broken in image["broken_rules"]:
        sentence = f"{broken['sentence']} What happens: {broken['otherwise']}."
        lines += ["", *_wrapped(sentence, "")]
    if image["gpu"]:
        lines += ["", *_gpu(image["gpu"])]
    return "\n".join(line.rstrip() for line in lines)


def _pin_lines(pin: dict[str, Any], mpi: str) -> list[str]:
    head = f"{pin['component']:<12} {mpi if pin['component'] == 'mpi' else pin['version']:<10}"
    line = f"{head} {pin['source']}"
    lines = [line] if len(line) <= WIDTH else [head, *_wrapped(pin["source"])]
    if pin["sha256"]:
        lines.append(f"{INDENT}sha256 {pin['sha256']}")
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
    packages = pin["packages"]
    if packages:
        unlocked = [one["url"] for one in packages if not one["locked"]]
        count = f"{len(packages) - len(unlocked)} of {len(packages)}"
        lines.append(f"{INDENT}{count} packages have a recorded sha256")
        lines += [f"{INDENT}unlocked {url.rsplit('/', 1)[1]}" for url in unlocked]
    return lines


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
