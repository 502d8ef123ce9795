"""``imgbuild show``: every pin of an image: value, source and reason."""

import json
from typing import TYPE_CHECKING, Any

import typer

from imgbuild.cli import options

if TYPE_CHECKING:
    from imgbuild.matrix.image import Image
    from imgbuild.matrix.pins import ResolvedPin


def show(
    tf: options.TfOption = None,
    cpu: options.CpuOption = False,
    gpu: options.GpuOption = False,
    stack: options.StackOption = None,
    everything: options.AllOption = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Show every pin of an image: value, source and reason."""
    images = options.select(options.open_project(project), tf, cpu, gpu, stack, everything)
    if as_json:
        typer.echo(json.dumps([_described(image) for image in images], indent=2))
        return
    typer.echo("\n\n".join(_text(image) for image in images))


def _described(image: "Image") -> dict[str, Any]:
    pins = [
        {
            "component": pin.component,
            "version": pin.version,
            "documented": pin.documented,
            "source": pin.source,
            "sha256": pin.sha256,
            "why": pin.why,
        }
        for pin in image.pins
    ]
    return {**image.as_json(), "pins": pins, "lock": f"images/locks/{image.lock_name}"}


def _text(image: "Image") -> str:
    """Return the image's pins as lines; what is long stands on lines of its own below."""
    lines = [image.name, *(f"  is named {tag}" for tag in image.tags)]
    for pin in image.pins:
        lines.append(f"{pin.component:<12} {pin.version:<10} {pin.source}")
        lines += [f"{'':<12} {detail}" for detail in _details(pin)]
    return "\n".join(lines)


def _details(pin: "ResolvedPin") -> list[str]:
    details = []
    if pin.sha256:
        details.append(f"sha256 {pin.sha256}")
    if pin.documented:
        details.append(f"documented: {pin.documented}")
    if pin.why:
        details.append(f"why: {pin.why}")
    return details
