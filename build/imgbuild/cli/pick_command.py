"""``imgbuild pick``: the images that will run, and why the others will not."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, option, print_json, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.selection import Selection, by_default, newest_of
from imgbuild.project import Project
from imgbuild.text import aligned, ranges, wrapped

if TYPE_CHECKING:
    from imgbuild.matrix.gpus import Gpu
    from imgbuild.matrix.images import Image


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
        "--requirements FILE", "Only images whose packages satisfy this file."
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Show which images will run, and why the others will not.

    Only the first of several reasons is shown. Packages that an image lacks are listed; `imgbuild
    extend` finds out whether they fit. Exit 1 if no image will run.
    """
    from imgbuild.catalog import choice

    if here and (gpu_model or driver):
        raise InputError(
            "--here reads the GPU and driver of this machine: omit --gpu-model and --driver."
        )
    gpus, no_gpu = choice.gpus_here() if here else ((), "")
    gpus = (choice.gpu_called(gpu_model, driver),) if gpu_model or driver else gpus
    lines = tuple(choice.read_requirements(requirements)) if requirements else ()
    need = choice.Requirements(gpus, no_gpu, choice.python_range(python or ">=0"), lines)
    images = select(checkout, selection.without_defaults)
    if selection.cpu and not selection.gpu:
        need = replace(need, gpus=())
    fit, refused = [], defaultdict(list)
    for image in images:
        if refusal := next(need.refusals(image, checkout.locks), None):
            refused[refusal[0]].append((image, refusal[1]))
        else:
            fit.append((image, need.code(image), need.added(image, checkout.locks)))
    newest = by_default(newest_of([one for one, *_ in fit]))[0].name if fit else None
    if as_json:
        runs = [{**i.as_json(), "gpu": gpu, "would_be_added": added} for i, gpu, added in fit]
        others = [
            {"why": why, "images": {image.name: has for image, has in alike}}
            for why, alike in refused.items()
        ]
        gpu_facts = [one._asdict() for one in gpus]
        print_json({"gpus": gpu_facts, "run": runs, "newest": newest, "refused": others})
    else:
        for gpu in need.gpus:
            echo(f"GPU: {gpu.name}, capability {gpu.capability}, driver {gpu.driver or 'any'}\n")
        echo(
            "\n".join(
                (
                    *_fitting(fit),
                    *_compiled(fit, need.gpus),
                    *_refused(refused, [image.minor for image in images]),
                )
            )
        )
        if newest:
            echo(f"\nThe newest that will run: `imgbuild build {newest}`")
    if not fit:
        without = " Without a GPU, use an image for CPUs (--cpu)." if need.no_gpu else ""
        raise CheckFailedError(f"No image will run; see the reasons above.{without}")


def _fitting(fit: "Sequence[tuple[Image, str, list[str]]]") -> Iterator[str]:
    """Yield the images that will run, and all that one of them lacks."""
    missing: dict[str, None] = {}
    rows = [("will run", "python", "cuda", "driver from", "code")]
    for image, gpu, added in fit:
        cuda, driver = (image.version_of("cuda"), image.cuda.driver) if image.cuda else ("-", "-")
        rows.append((image.name, image.version_of("python"), cuda, driver, gpu))
        missing.update(dict.fromkeys(added))
    yield from aligned(rows) if fit else ()
    yield from ["", *wrapped(f"would be added: {', '.join(missing)}", "")] if missing else ()


def _compiled(
    fit: "Sequence[tuple[Image, str, list[str]]]", gpus: "Sequence[Gpu]"
) -> Iterator[str]:
    """Yield what PTX alone means for the GPUs."""
    from imgbuild.matrix.gpus import KernelSupport, kernel_support, of_ptx

    cuda = [(image.wheel, image.cuda) for image, *_ in fit if image.cuda]
    for one in (gpu.capability for gpu in gpus if gpu.capability):
        if any(kernel_support(one, *code) is KernelSupport.PTX for code in cuda):
            yield from ["", *wrapped(f"{KernelSupport.PTX}: {of_ptx(one)}", "")]


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
