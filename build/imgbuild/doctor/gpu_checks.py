"""Check the GPUs of this machine, and say which images run on them and how."""

from collections import Counter
from collections.abc import Iterator, Sequence
from glob import glob

from imgbuild.core.process import run
from imgbuild.core.text import ranges
from imgbuild.doctor.checks import Finding, Status, ask_check
from imgbuild.doctor.host_system import as_root, install_command
from imgbuild.engine.discovery import DEFAULT_HOST
from imgbuild.engine.gpus import SECONDS, find_gpus
from imgbuild.engine.types import EngineVersion
from imgbuild.matrix.gpus import Gpu, KernelSupport, compatibility, why_no_image
from imgbuild.matrix.images import Image

#: The device files of the Container Device Interface. Source: its specification.
CDI_FILES = ("/etc/cdi/*", "/var/run/cdi/*")
_WAYS = {
    "nvidia": "the engine offers GPUs through NVIDIA's runtime",
    "cdi": "the engine offers GPUs through CDI",
    None: "the engine offers no GPUs to containers",
}
_VERBS = {
    KernelSupport.NATIVE: "run natively",
    KernelSupport.PTX: "run through PTX",
    KernelSupport.NOTHING: "do not run",
    None: "may run",
}
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/"


def check_gpus(
    family: Sequence[Image],
    selected: Sequence[Image],
    host: str | None,
    engine: EngineVersion | None,
) -> Iterator[Finding]:
    """Yield findings for the GPUs, the engine's access to them, and the GPU images of ``family``.

    Builds need no GPU, so problems of ``selected`` images are only warnings.
    """
    way = _WAYS[engine.gpus if engine else None]
    if not (host or DEFAULT_HOST).startswith("unix://"):
        yield Finding(Status.SKIPPED, "GPU", f"not checked: {way}, on another machine")
        return
    # nvidia-smi cannot even be killed while it waits for a broken driver.
    answer, late = ask_check(find_gpus, 3 * SECONDS)
    gpus, problem = answer or ([], late)
    if problem:
        fix = "see `dmesg` for the reason; after a driver upgrade, restart the machine"
        yield Finding(Status.WARNING, "GPU", f"nvidia-smi lists no GPU: {problem}", fix)
    elif not gpus:
        detail = "no nvidia-smi; GPU images can be built, but their suite gpu_runs is skipped"
        yield Finding(Status.SKIPPED, "GPU", detail)
    else:
        yield _check_containers(way, offered=bool(engine and engine.gpus))
    for gpu, count in Counter(gpus).items():
        capability = gpu.capability or "unknown (an old nvidia-smi)"
        detail = f"{count} x {gpu.name}, compute capability {capability}, driver {gpu.driver}"
        yield Finding(Status.FINE, "GPU", detail)
        if reason := why_no_image(gpu.name):
            yield Finding(Status.WARNING, "GPU images", reason)
            continue
        images = [image for image in family if image.cuda]
        yield from _check_images(gpu, images, {image.name for image in selected})


def _check_containers(way: str, *, offered: bool) -> Finding:
    """Return whether the engine offers GPUs, with the state of NVIDIA's container toolkit."""
    told = run(["nvidia-ctk", "--version"], timeout=SECONDS)
    toolkit = told.output.partition("\n")[0] if told.ok else "no nvidia-ctk"
    names = [toolkit]
    for pattern in CDI_FILES:
        names += glob(pattern)  # noqa: PTH207 - no errors
    detail = f"{way} ({', '.join(names)})"
    if offered:
        return Finding(Status.FINE, "GPUs in containers", detail)
    fix = as_root("nvidia-ctk runtime configure --runtime=docker, and restart the engine")
    if not told.ok:
        fix = f"{install_command('nvidia-container-toolkit')} (instructions: {_TOOLKIT})\n{fix}"
    return Finding(Status.WARNING, "GPUs in containers", detail, fix)


def _check_images(gpu: Gpu, images: Sequence[Image], selected: set[str]) -> Iterator[Finding]:
    every = [*dict.fromkeys(image.minor for image in images)]
    groups: dict[tuple[KernelSupport | None, str], list[Image]] = {}
    for image in images:
        groups.setdefault(compatibility(image, gpu.capability, gpu.driver), []).append(image)
    for (support, why), alike in groups.items():
        names = ranges([image.minor for image in alike], every)
        concerns = not selected.isdisjoint(image.name for image in alike)
        status = Status.WARNING if concerns else Status.SKIPPED
        status = Status.FINE if support is KernelSupport.NATIVE else status
        fix = "upgrade the NVIDIA driver, and restart" if concerns and "too old" in why else None
        detail = f"TensorFlow {names} {_VERBS[support]} on {gpu.name}"
        yield Finding(status, "GPU images", f"{detail}: {why}" if why else detail, fix)
