"""Export single stages: the stub of the driver's library, and apt's plan of packages."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.build.one_bake import log_path
from imgbuild.build.prepare import fetch_downloads
from imgbuild.build.targets import bake_target
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage
from imgbuild.engine.bake import BakeTarget, run_bake
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import ContentStore, work_folder
from imgbuild.inputs.install_stages import plan_name, with_plan
from imgbuild.inputs.listing import Item, Kind, store_file
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action, PlanItem

#: The stage that holds nothing but ``/libcuda.so.1``.
STUB = "driver-stub"
_APT_PLAN = "imgbuild-apt"
#: What ``apt-get --print-uris`` prints of each package: address, file name, bytes, hash.
_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")


def export_stub(image: Image, image_id: str, context: BuildContext, folder: Path) -> None:
    """Write the driver's stub into ``folder``, out of the build cache of the image.

    Raises:
        CheckFailedError: the image was not built from this checkout, or the stage fails.
        MachineError: this machine cannot build.

    """
    digest = context.digests[image.name].total
    stored = context.engine.inspect(image_id)
    if stored is None or stored.labels.get(INPUT_DIGEST) != digest:
        raise CheckFailedError(f"{image_id} was not built from this checkout")
    # The same folders as in the image's build: its stages then come from the cache.
    downloads, failed = fetch_downloads([image], context, keep_going=False)
    for error in failed.values():
        raise error
    target = replace(_target(image, downloads[image.name], context), target=STUB)
    _export(target, folder, f"{image.name}-stub", context, show=False)


def apt_items(
    image: Image, stages: Iterable[Stage], context: BuildContext, store: ContentStore
) -> tuple[Item, ...]:
    """Return every package that the stages install, and the lists, which are stored already.

    Each plan is made by apt itself, in the build stage where the packages would be installed, from
    the archive's signed lists. The lists are kept too: an installation without a network reads
    them.

    Raises:
        CheckFailedError: apt has no such package, or a stage cannot be built.
        MachineError: the engine or the archive cannot be reached.

    """
    planned = tuple(stages)
    with work_folder("apt") as folder:
        rendered = render_dockerfile(image, context.project.templates)
        dockerfile = folder / "Dockerfile"
        dockerfile.write_text(with_plan(rendered, planned, _APT_PLAN), encoding="utf-8")
        target = replace(
            _target(image, {}, context),
            dockerfile=dockerfile,
            target=_APT_PLAN,
            uncached=tuple(plan_name(stage) for stage in planned),
        )
        out = folder / "out"
        _export(target, out, f"{image.name}-packages", context, show=True)
        return tuple(dict.fromkeys(_planned_items(out, planned, store)))


def _target(image: Image, downloads: Mapping[str, Path], context: BuildContext) -> BakeTarget:
    item = PlanItem(context.own(image), context.digests[image.name], Action.BUILD, "")
    return bake_target(item, context.inputs, downloads, context.project, context.revision)


def _export(
    target: BakeTarget, folder: Path, name: str, context: BuildContext, *, show: bool
) -> None:
    run_bake(
        context.buildx,
        context.host,
        [replace(target, labels={}, output=f"type=local,dest={folder}")],
        log=log_path(name, context),
        listener=context.display.on_event if show else lambda _: None,
    )


def _planned_items(out: Path, stages: Iterable[Stage], store: ContentStore) -> Iterator[Item]:
    for stage in stages:
        folder = out / stage.name
        for line in (folder / "uris").read_text(encoding="utf-8").splitlines():
            yield _package(line)
        for path in sorted((folder / "lists").iterdir()):
            yield store_file(path, store, Kind.APT_LIST, path.name)
        yield store_file(folder / "upstreams", store, Kind.APT_MIRRORS, "upstreams")


def _package(line: str) -> Item:
    match = _URI.fullmatch(line.strip())
    if not match:
        raise MachineError(
            f"apt names a package without its sha256, so it cannot be fetched: {line!r}. The "
            "archive's lists must hold SHA256."
        )
    return Item(Kind.APT_PACKAGE, match[2], match[1], match[4], int(match[3]))
