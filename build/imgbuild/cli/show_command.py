"""``imgbuild show``: every pin of an image with its source and reason, and the GPUs it serves."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imgbuild.cli.options import JSON, PROJECT, print_result, select, takes_selection
from imgbuild.core.project import Project
from imgbuild.core.text import WIDTH, wrap_words
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image

INDENT = "    "
GPU_TITLE = (
    "GPUs by compute capability, and the code that TensorFlow has for them",
    f"{INDENT}(PTX only: the driver compiles it at the first start, which takes minutes)",
)


@takes_selection()
def show(selection: Selection, as_json: bool = JSON, checkout: Project = PROJECT) -> None:
    """Show the pins of an image, each with its reason, and its GPUs."""
    facts = [image_facts(image, checkout.locks) for image in select(checkout, selection)]
    print_result(facts, ["\n\n".join(map(image_text, facts))], as_json=as_json)


def image_facts(image: "Image", locks: Path) -> dict[str, Any]:
    """Return the image's pins with sources and reasons, its locks and its GPUs."""
    from imgbuild.locks.conda import conda_packages
    from imgbuild.matrix.images import planned_tags

    packages = [
        {"url": url, "sha256": sha256, "locked": sha256 is not None}
        for url, sha256 in conda_packages(image.version_of("python"), image.python, locks).items()
    ]
    apt = list(image.apt_cuda.runtime) if image.apt_cuda else []
    pins = []
    for pin in image.pins:
        facts = asdict(pin)
        del facts["key"]
        facts["packages"] = packages if pin.component == "python" else []
        facts["apt"] = apt if pin.component == "cuda" else []
        pins.append(facts)
    return {
        **image.as_json(),
        "aliases": list(image.aliases),
        "published": asdict(planned_tags(image)),
        "pins": pins,
        "without_horovod": None if image.horovod else image.row.horovod.why,
        "lock": f"images/locks/{image.lock_name}",
        "provides": dict.fromkeys(image.provided, image.distribution),
        "gpu": _gpu(image),
    }


def _gpu(image: "Image") -> dict[str, Any] | None:
    from imgbuild.matrix.gpus import gpu_support, unsupported_gpus

    if image.cuda is None:
        return None
    # The rule that judges the minimum drivers has their source.
    sources = (rule.source for rule in image.matrix.rules if rule.value == "cuda.driver")
    return {
        "minimum_driver": image.cuda.driver,
        "minimum_driver_source": next(sources, "matrix.yaml"),
        "newest_capability": image.cuda.newest,
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
    gpu, immutable = image["gpu"], image["published"]["immutable"]
    lines = [image["name"]]
    for title, values in (
        ("tags", image["tags"]),
        ("published under these, which move, and as", [immutable]),
        ("aliases", image["aliases"]),
        ("Python packages", [image["lock"]]),
    ):
        lines += wrap_words(f"{title}: {' '.join(values)}") if values else []
    for name, distribution in image["provides"].items():
        lines.append(f"  {name} is provided by {distribution}, for packages that require it")
    for pin in image["pins"]:
        lines += _pin_lines(pin, image["mpi"])
    if why := image["without_horovod"]:
        lines += ["horovod, mpi -", *wrap_words(f"why: {why}", INDENT)]
    if gpu:
        lines += ["", f"minimum driver {gpu['minimum_driver']}"]
        lines += [*wrap_words(f"source: {gpu['minimum_driver_source']}", INDENT), "", *GPU_TITLE]
        for facts in gpu["generations"]:
            line = f"{facts['generation']:<10} {facts['capability']:<5} {facts['service']:<15}"
            lines.append(f"{INDENT}{line} {facts['examples']}")
        lines += wrap_words(gpu["not_served"] or "", INDENT)
    return "\n".join(line.rstrip() for line in lines)


def _pin_lines(pin: dict[str, Any], mpi: str) -> list[str]:
    head = f"{pin['component']:<12} {mpi if pin['component'] == 'mpi' else pin['version']:<10}"
    line = f"{head} {pin['source']}"
    lines = [line] if len(line) <= WIDTH else [head, *wrap_words(pin["source"], INDENT)]
    notes = [f"sha256 {pin['sha256']}"] if pin["sha256"] else []
    if pin["documented"]:
        gone = ", which is not available for this image"
        notes.append(f"documented: {pin['documented']}{'' if pin['documented_exists'] else gone}")
    if pin["why"]:
        notes.append(f"why: {pin['why']}")
    if pin["apt"]:
        notes.append(f"packages: {' '.join(pin['apt'])}")
    if packages := pin["packages"]:
        unlocked = [
            package["url"].rsplit("/", 1)[1] for package in packages if not package["locked"]
        ]
        count = f"{len(packages) - len(unlocked)} of {len(packages)}"
        notes.append(f"{count} packages have a recorded sha256")
        notes += [f"unlocked {name}" for name in unlocked]
    for note in notes:
        lines += wrap_words(note, INDENT)
    return lines
