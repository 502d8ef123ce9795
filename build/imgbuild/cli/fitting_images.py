"""List images that will run with a GPU, a Python or packages, and why the others will not."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imgbuild.cli.options import echo, print_json
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, count_text, ranges, wrap_words
from imgbuild.matrix.selection import default_image, newest_images

if TYPE_CHECKING:
    from imgbuild.catalog.choice import Fit, Requirements
    from imgbuild.matrix.gpus import Gpu
    from imgbuild.matrix.images import Image

#: If at most this many images will run, list the differing lines of each image.
_DETAILED = 6
#: The images that will not run, by reason, each with its own version of the wrong component.
Refused = defaultdict[str, list[tuple["Image", str]]]


def read_need(
    gpu_model: str | None,
    driver: str | None,
    python: str | None,
    requirements: Path | None,
    *,
    here: bool,
) -> "Requirements":
    """Return the requirements from the options of `list`; InputError: a value is wrong."""
    from imgbuild.catalog import choice

    if here and (gpu_model or driver):
        raise InputError(
            "--here uses the GPU and driver of this machine: omit --gpu-model and --driver."
        )
    need = choice.read_requirements(requirements) if requirements else choice.Requirements()
    pythons = choice.python_range(python or ">=0")
    need = replace(need, python=pythons & need.python)
    if here:
        gpus, no_gpu = choice.gpus_here()
        need = replace(need, gpus=gpus, no_gpu=no_gpu)
    elif gpu_model or driver:
        gpu = choice.find_gpu(gpu_model, driver)
        need = replace(need, gpus=(gpu,))
    return need


def print_fitting(
    images: "Sequence[Image]", need: "Requirements", project: Project, *, as_json: bool
) -> None:
    """Print the images that will run, and why the others will not.

    CheckFailedError: no image will run.
    """
    fits, refused = _judge_images(images, need, project)
    best = need.best_fit(fits)
    if as_json:
        document = {
            "gpus": [gpu._asdict() for gpu in need.gpus],
            "run": [_fit_json(fit, need) for fit in fits],
            "newest": best.image.name if best else None,
            "refused": _refused_json(refused),
        }
        print_json(document)
    else:
        lines = [*_gpu_lines(need.gpus)]
        lines += _fit_lines(fits, need)
        lines += _ptx_lines(fits, need.gpus)
        minors = [image.minor for image in images]
        lines += _refusal_lines(refused, minors)
        if best and need.path:
            lines += _difference_lines(fits, best, need)
        elif best:
            lines.append(f"\nBuild the newest that will run: `imgbuild build {best.image.name}`")
        echo("\n".join(lines))
    if not fits:
        alternatives = _name_alternatives(images, need, project)
        raise CheckFailedError(f"No image will run. See the reasons above.{alternatives}")


def _name_alternatives(images: "Sequence[Image]", need: "Requirements", project: Project) -> str:
    """Suggest the oldest image that supports the GPUs, and a selected image for CPUs."""
    from imgbuild.catalog.choice import Requirements
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.rules import parse_numbers

    if need.no_gpu:
        return " This machine cannot use a GPU, so use an image for CPUs (--cpu)."
    if not need.gpus:
        return ""
    text = ""
    supporting, _ = _judge_images(
        all_images(images[0].matrix), Requirements(gpus=need.gpus), project
    )
    if supporting:
        oldest = min(supporting, key=lambda fit: parse_numbers(fit.image.tensorflow)).image
        text += f" Build the oldest image that supports the GPU: `imgbuild build {oldest.name}`."
    for_cpus = [image for image in images if not image.cuda]
    if for_cpus:
        text += (
            " To run without the GPU, build an image for CPUs: "
            f"`imgbuild build {default_image(newest_images(for_cpus)).name}`."
        )
    return text


def _judge_images(
    images: "Sequence[Image]", need: "Requirements", project: Project
) -> "tuple[list[Fit], Refused]":
    """Return the images that will run, and the others by reason."""
    from imgbuild.catalog.choice import Fit

    fits, refused = list[Fit](), Refused(list)
    for image in images:
        verdict = need.judge(image, project)
        if isinstance(verdict, Fit):
            fits.append(verdict)
        else:
            why, version = verdict
            refused[why].append((image, version))
    return fits, refused


def _fit_json(fit: "Fit", need: "Requirements") -> dict[str, Any]:
    facts = {**fit.image.as_json(), "gpu": fit.code, "would_be_added": [*fit.added]}
    if need.path:
        differing = []
        for line, why in fit.differing:
            differing.append({"place": line.place, "line": line.text, "why": why})
        facts["differs"] = differing
        facts["extend"] = need.extend_command(fit)
    return facts


def _refused_json(refused: "Refused") -> list[dict[str, Any]]:
    groups = []
    for why, alike in refused.items():
        images = {image.name: version for image, version in alike}
        groups.append({"why": why, "images": images})
    return groups


def _gpu_lines(gpus: "Sequence[Gpu]") -> Iterator[str]:
    for gpu in gpus:
        driver = gpu.driver or "any"
        yield f"GPU: {gpu.name}, capability {gpu.capability}, driver {driver}\n"


def _fit_lines(fits: "Sequence[Fit]", need: "Requirements") -> Iterator[str]:
    """Yield the table of the images that will run, and the packages that they lack."""
    missing: dict[str, None] = {}
    header = ["will run", "python", "cuda", "driver from", "code"]
    if need.path:
        header.append("lines differ")
    rows = [header]
    for fit in fits:
        image = fit.image
        cuda, driver = "-", "-"
        if image.cuda:
            cuda, driver = image.version_of("cuda"), image.cuda.driver
        row = [image.name, image.version_of("python"), cuda, driver, fit.code]
        if need.path:
            row.append(str(len(fit.differing)))
        rows.append(row)
        missing.update(dict.fromkeys(fit.added))
    if fits:
        yield from align_rows(rows)
    if missing:
        yield ""
        yield from wrap_words(f"would be added: {', '.join(missing)}", "")


def _difference_lines(fits: "Sequence[Fit]", best: "Fit", need: "Requirements") -> Iterator[str]:
    """Yield the differing lines and the command for each image; of many images, for the best."""
    detailed = fits if len(fits) <= _DETAILED else [best]
    for fit in detailed:
        count = len(fit.differing)
        verb = "differs" if count == 1 else "differ"
        yield f"\n{fit.image.name}: {count_text(count, 'line')} {verb}"
        rows = [("", line.place, line.text, why) for line, why in fit.differing]
        yield from align_rows(rows)
        yield f"  {need.extend_command(fit)}"
    if len(detailed) < len(fits):
        yield (
            f"\n{best.image.name} differs in the fewest lines. Use --tf VERSION to see other "
            "images."
        )


def _ptx_lines(fits: "Sequence[Fit]", gpus: "Sequence[Gpu]") -> Iterator[str]:
    """Yield a warning if an image has only PTX for a GPU."""
    from imgbuild.matrix.gpus import PTX_WARNING, KernelSupport, kernel_support

    cuda = [(fit.image.wheel, fit.image.cuda) for fit in fits if fit.image.cuda]
    capabilities = [gpu.capability for gpu in gpus if gpu.capability]
    if any(
        kernel_support(capability, *code) is KernelSupport.PTX
        for capability in capabilities
        for code in cuda
    ):
        yield ""
        yield from wrap_words(f"{KernelSupport.PTX}: {PTX_WARNING}", "")


def _refusal_lines(refused: "Refused", minors: Sequence[str]) -> Iterator[str]:
    """Yield each reason with its images, by kind and range of versions."""
    every = sorted({*minors}, key=lambda minor: [int(number) for number in minor.split(".")])
    for why, alike in refused.items():
        has = dict.fromkeys(version for _, version in alike if version)
        reason = f"{why}; they have {', '.join(has)}" if has else why
        yield ""
        yield from wrap_words(reason, "")
        kinds = defaultdict(list)
        for image, _ in alike:
            kinds[image.name.split("-", 2)[2]].append(image.minor)
        texts = []
        for kind, named in kinds.items():
            versions = ranges(named, every)
            texts.append(f"{kind} {versions}")
        yield from wrap_words(f"{len(alike)} will not run: {'; '.join(texts)}")
