"""What ``imgbuild show`` prints: lines of at most 80 columns, URLs and sha256 never broken."""

import textwrap
from typing import Any

WIDTH = 80
INDENT = "    "
GPU_TITLE = (
    "GPUs by compute capability, and what TensorFlow has for them",
    f"{INDENT}(PTX only: the driver compiles it at first use, which takes minutes)",
)


def image_text(image: dict[str, Any]) -> str:
    """Return an image as :mod:`imgbuild.cli.show_data` describes it, for people."""
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
        gone = "" if pin["documented_exists"] else ", which cannot be had: the corrected one stays"
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
