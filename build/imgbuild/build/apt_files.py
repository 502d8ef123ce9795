"""The packages of an image's operating system: planned by apt, fetched by imgbuild.

Each plan is made by apt itself, in the build stage where the packages would be installed, from the
archive's signed lists. The lists are fetched too: an installation without a network reads them.
"""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from imgbuild.build.targets import bake_target
from imgbuild.build.workshop import Workshop
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage
from imgbuild.engine.bake import run_export
from imgbuild.errors import MachineError
from imgbuild.fetching.base_files import store_file
from imgbuild.fetching.listing import Item, Kind
from imgbuild.fetching.stages import plan_name, with_plan
from imgbuild.files import work_folder
from imgbuild.matrix.images import Image

_TARGET = "imgbuild-apt"
#: What ``apt-get --print-uris`` prints of each package: address, file name, bytes, hash.
_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")


def apt_items(
    image: Image, stages: Iterable[Stage], workshop: Workshop, store: Path
) -> tuple[Item, ...]:
    """Return every package that the stages install, and the lists, which are stored already.

    Raises:
        CheckFailedError: apt has no such package, or a stage cannot be built.
        MachineError: the engine or the archive cannot be reached.

    """
    chosen = tuple(stages)
    with work_folder("apt") as folder:
        out = folder / "out"
        _export(image, chosen, workshop, folder, out)
        return tuple(dict.fromkeys(_read(out, chosen, store)))


def _export(
    image: Image, stages: tuple[Stage, ...], workshop: Workshop, folder: Path, out: Path
) -> None:
    rendered = render_dockerfile(image, workshop.project.templates)
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text(with_plan(rendered, stages, _TARGET), encoding="utf-8")
    (item,) = workshop.plan([image], test=False)
    target = replace(
        bake_target(item, workshop.inputs, {}, workshop.project, None),
        dockerfile=dockerfile,
        labels={},
        target=_TARGET,
        output=f"type=local,dest={out}",
        uncached=tuple(plan_name(stage) for stage in stages),
    )
    stamp = time.strftime("%Y%m%dT%H%M%S")
    log = workshop.state / "logs" / f"{stamp}-{image.name}-packages.log"
    run_export(workshop.buildx, workshop.host, target, log=log, listener=workshop.display.on_event)


def _read(out: Path, stages: Iterable[Stage], store: Path) -> Iterator[Item]:
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
