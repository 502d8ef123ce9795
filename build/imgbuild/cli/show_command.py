"""``imgbuild show``: show the pins of an image with sources and reasons, and its GPUs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imgbuild.cli.options import JSON, PROJECT, flag, print_result, select, takes_selection
from imgbuild.core.project import Project
from imgbuild.core.text import WIDTH, wrap_words
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image

INDENT = "    "
GPU_TITLE = (
    "GPUs by compute capability, and the code that TensorFlow contains for them",
    f"{INDENT}(PTX only: the driver compiles it at the first start, which takes minutes)",
)


@takes_selection()
def show(
    selection: Selection,
    layers: bool = flag(
        "--layers",
        "Show the layers of built images instead; exit 1 if an image exceeds its budget.",
    ),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """Show the pins of an image, their reasons, and supported GPUs.

    With --layers, the command shows the size of each layer and the step that made it. IMAGE can
    then also be an image outside the list.

    Example: imgbuild show 2.2-gpu
    """
    if layers:
        from imgbuild.cli.image_layers import print_layers

        print_layers(checkout, selection, as_json=as_json)
        return
    images = select(checkout, selection)
    facts = [read_image_facts(image, checkout.locks) for image in images]
    texts = map(image_text, facts)
    print_result(facts, ["\n\n".join(texts)], as_json=as_json)


def read_image_facts(image: "Image", locks: Path) -> dict[str, Any]:
    """Return the facts of ``show --json``: pins with sources and reasons, locks, tags and GPUs."""
    from imgbuild.locks.conda import conda_packages
    from imgbuild.matrix.images import planned_tags

    python = image.version_of("python")
    hashes = conda_packages(python, image.python, locks)
    packages = []
    for url, sha256 in hashes.items():
        packages.append({"url": url, "sha256": sha256, "locked": sha256 is not None})
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
    from imgbuild.matrix.gpus import NO_CUDA_ON_ARM, gpu_support, unsupported_gpus

    if image.cuda is None:
        return None
    # The rule for the minimum drivers names their source.
    sources = (rule.source for rule in image.matrix.rules if rule.value == "cuda.driver")
    generations = []
    for generation, support in gpu_support(image):
        facts = {
            "generation": generation.name,
            "capability": generation.capability,
            "service": str(support),
            "examples": generation.examples,
        }
        generations.append(facts)
    return {
        "ran_on": list(image.ran_on),
        "why_not_arm64": NO_CUDA_ON_ARM,
        "minimum_driver": image.cuda.driver,
        "minimum_driver_source": next(sources, "matrix.yaml"),
        "newest_capability": image.cuda.newest,
        "not_served": unsupported_gpus(image),
        "generations": generations,
    }


def image_text(image: dict[str, Any]) -> str:
    """Return an image as lines of at most 80 columns, without breaking URLs or sha256."""
    named = {
        "tags": image["tags"],
        "platforms": image["platforms"],
        "published with these moving tags and the immutable tag": [image["published"]["immutable"]],
        "aliases": image["aliases"],
        "Python packages": [image["lock"]],
    }
    lines = [image["name"]]
    for title, values in named.items():
        if values:
            text = " ".join(values)
            lines += wrap_words(f"{title}: {text}")
    for name, distribution in image["provides"].items():
        lines.append(f"  {name} is provided by {distribution}, for packages that require it")
    for pin in image["pins"]:
        lines += _pin_lines(pin, image["mpi"])
    if why := image["without_horovod"]:
        lines.append("horovod, mpi -")
        lines += wrap_words(f"why: {why}", INDENT)
    if image["gpu"]:
        lines += _gpu_lines(image["gpu"])
    return "\n".join(line.rstrip() for line in lines)


def _gpu_lines(gpu: dict[str, Any]) -> list[str]:
    lines = ["", f"minimum driver {gpu['minimum_driver']}"]
    lines += wrap_words(f"source: {gpu['minimum_driver_source']}", INDENT)
    if gpu["ran_on"]:
        lines.append(f"the suite gpu_runs passed on {', '.join(gpu['ran_on'])}")
    lines += wrap_words(f"only for x86-64, because {gpu['why_not_arm64']}")
    lines += ["", *GPU_TITLE]
    for facts in gpu["generations"]:
        line = f"{facts['generation']:<10} {facts['capability']:<5} {facts['service']:<15}"
        lines.append(f"{INDENT}{line} {facts['examples']}")
    lines += wrap_words(gpu["not_served"] or "", INDENT)
    return lines


def _pin_lines(pin: dict[str, Any], mpi: str) -> list[str]:
    component = pin["component"]
    version = mpi if component == "mpi" else pin["version"]
    head = f"{component:<12} {version:<10}"
    line = f"{head} {pin['source']}"
    lines = [line] if len(line) <= WIDTH else [head, *wrap_words(pin["source"], INDENT)]
    for note in _pin_notes(pin):
        lines += wrap_words(note, INDENT)
    return lines


def _pin_notes(pin: dict[str, Any]) -> list[str]:
    notes = []
    if pin["sha256"]:
        notes.append(f"sha256 {pin['sha256']}")
    if pin["documented"]:
        note = f"documented: {pin['documented']}"
        if not pin["documented_exists"]:
            note += ", which is not available for this image"
        notes.append(note)
    if pin["why"]:
        notes.append(f"why: {pin['why']}")
    if pin["apt"]:
        names = " ".join(pin["apt"])
        notes.append(f"packages: {names}")
    if packages := pin["packages"]:
        urls = [package["url"] for package in packages if not package["locked"]]
        locked = len(packages) - len(urls)
        notes.append(f"{locked} of {len(packages)} packages have a recorded sha256")
        for url in urls:
            _, _, name = url.rpartition("/")
            notes.append(f"unlocked {name}")
    return notes
