"""``imgbuild pick``: the images that will run, and why the others will not."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, option, print_json, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.selection import Selection
from imgbuild.project import Project
from imgbuild.text import aligned, counted, ranges, wrapped

if TYPE_CHECKING:
    from imgbuild.catalog.choice import Fit, RequirementFile
    from imgbuild.matrix.gpus import Gpu
    from imgbuild.matrix.images import Image

#: Of so many images that will run, the lines that differ are listed.
_DETAILED = 6


@takes_selection(without="everything")
def pick(
    selection: Selection,
    gpu_model: str | None = option(
        "--gpu-model MODEL", "The GPU, such as 'Tesla V100', or its capability, 7.0."
    ),
    driver: str | None = option("--driver VERSION", "NVIDIA's driver, such as 450.80."),
    here: bool = flag("--here", "The GPUs and the driver of this machine, if it has any."),
    python: str | None = option("--python VERSION", "The Python, such as 3.6 or >=3.8."),
    requirements: Path | None = option(
        "--requirements FILE",
        "Only images with the TensorFlow and the Python of this requirements or conda file.",
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Show which images will run, and why the others will not.

    Only the first of several reasons is shown. A file excludes images only by its TensorFlow and
    Python. Other lines that differ from an image are listed, with the `imgbuild extend` command
    that adds the rest. Exit 1 if no image will run.
    """
    from imgbuild.catalog import choice

    if here and (gpu_model or driver):
        raise InputError(
            "--here reads the GPU and driver of this machine: omit --gpu-model and --driver."
        )
    gpus, no_gpu = choice.gpus_here() if here else ((), "")
    gpus = (choice.gpu_called(gpu_model, driver),) if gpu_model or driver else gpus
    file = choice.read_requirements(requirements) if requirements else None
    versions = choice.python_range(python or ">=0") & (file.python if file else "")
    need = choice.Requirements(gpus, no_gpu, versions, file.lines if file else ())
    images = select(checkout, selection.without_defaults)
    if selection.cpu and not selection.gpu:
        need = replace(need, gpus=())
    fits, refused = list[choice.Fit](), defaultdict(list)
    for image in images:
        judged = need.judge(image, checkout)
        if isinstance(judged, choice.Fit):
            fits.append(judged)
        else:
            refused[judged[0]].append((image, judged[1]))
    best = choice.best_fit(fits, file)
    if as_json:
        others = [
            {"why": why, "images": {image.name: has for image, has in alike}}
            for why, alike in refused.items()
        ]
        newest = best.image.name if best else None
        runs = [_as_json(fit, file) for fit in fits]
        gpu_facts = [one._asdict() for one in gpus]
        print_json({"gpus": gpu_facts, "run": runs, "newest": newest, "refused": others})
    else:
        for gpu in need.gpus:
            echo(f"GPU: {gpu.name}, capability {gpu.capability}, driver {gpu.driver or 'any'}\n")
        minors = [image.minor for image in images]
        groups = (_fitting(fits, file), _compiled(fits, need.gpus), _refused(refused, minors))
        echo("\n".join(chain(*groups)))
        if file and best:
            echo("\n".join(_differing(fits, best, file)))
        elif best:
            echo(f"\nThe newest that will run: `imgbuild build {best.image.name}`")
    if not fits:
        without = " Without a GPU, use an image for CPUs (--cpu)." if need.no_gpu else ""
        raise CheckFailedError(f"No image will run; see the reasons above.{without}")


def _as_json(fit: "Fit", file: "RequirementFile | None") -> dict[str, Any]:
    found = {**fit.image.as_json(), "gpu": fit.code, "would_be_added": [*fit.added]}
    if file:
        found["differs"] = [
            {"place": line.place, "line": line.text, "why": why} for line, why in fit.differing
        ]
        found["extend"] = file.extend_command(fit)
    return found


def _fitting(fits: "Sequence[Fit]", file: "RequirementFile | None") -> Iterator[str]:
    """Yield the images that will run, and all that one of them lacks."""
    missing: dict[str, None] = {}
    differ = ("lines differ",) if file else ()
    rows = [("will run", "python", "cuda", "driver from", "code", *differ)]
    for fit in fits:
        image = fit.image
        cuda, driver = (image.version_of("cuda"), image.cuda.driver) if image.cuda else ("-", "-")
        count = (str(len(fit.differing)),) if file else ()
        rows.append((image.name, image.version_of("python"), cuda, driver, fit.code, *count))
        missing.update(dict.fromkeys(fit.added))
    yield from aligned(rows) if fits else ()
    yield from ["", *wrapped(f"would be added: {', '.join(missing)}", "")] if missing else ()


def _differing(fits: "Sequence[Fit]", best: "Fit", file: "RequirementFile") -> Iterator[str]:
    """Yield the lines that differ and the command for each image; of many, for the best one."""
    shown = fits if len(fits) <= _DETAILED else [best]
    for fit in shown:
        count = len(fit.differing)
        verb = "differs" if count == 1 else "differ"
        yield f"\n{fit.image.name}: {counted(count, 'line')} {verb}"
        yield from aligned([("", line.place, line.text, why) for line, why in fit.differing])
        yield f"  {file.extend_command(fit)}"
    if len(shown) < len(fits):
        yield f"\n{best.image.name} differs in the fewest lines. --tf VERSION shows other images."


def _compiled(fits: "Sequence[Fit]", gpus: "Sequence[Gpu]") -> Iterator[str]:
    """Yield what PTX alone means for the GPUs."""
    from imgbuild.matrix.gpus import KernelSupport, kernel_support, ptx_warning

    cuda = [(fit.image.wheel, fit.image.cuda) for fit in fits if fit.image.cuda]
    for one in (gpu.capability for gpu in gpus if gpu.capability):
        if any(kernel_support(one, *code) is KernelSupport.PTX for code in cuda):
            yield from ["", *wrapped(f"{KernelSupport.PTX}: {ptx_warning(one)}", "")]


def _refused(
    refused: "Mapping[str, Sequence[tuple[Image, str]]]", minors: Sequence[str]
) -> Iterator[str]:
    """Yield each reason with the images that it is true of, by kind and range of versions."""
    every = sorted({*minors}, key=lambda minor: [int(number) for number in minor.split(".")])
    for why, alike in refused.items():
        has = dict.fromkeys(version for _, version in alike if version)
        yield ""
        yield from wrapped(f"{why}; they have {', '.join(has)}" if has else why, "")
        kinds = defaultdict(list)
        for image, _ in alike:
            kinds[image.name.split("-", 2)[2]].append(image.minor)
        texts = (f"{kind} {ranges(found, every)}" for kind, found in kinds.items())
        yield from wrapped(f"{len(alike)} will not run: {'; '.join(texts)}")
