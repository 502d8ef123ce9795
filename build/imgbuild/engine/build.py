"""Build one image or stage with ``docker buildx bake``: run it, follow it, say what failed."""

import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from imgbuild.core.errors import MachineError
from imgbuild.core.files import work_folder
from imgbuild.core.process import Process, read_lines, start
from imgbuild.engine.discovery import Buildx, build_environment, is_reachable, run_buildx
from imgbuild.engine.failure import build_error
from imgbuild.engine.steps import BuildSteps, Step
from imgbuild.engine.types import IMAGE_PLATFORM

#: How often a waiting reader looks at the clock, in seconds.
LOOK_SECONDS = 1.0
#: How often another builder than the engine's own is asked whether it is there, in seconds, and how
#: often in a row it may not answer: on a busy machine an answer takes long.
WATCH_SECONDS, MISSED = 15.0, 2
#: How BuildKit keeps its cache: every step, in the form that all registries take; one that cannot
#: be written fails no build.
_KEPT = "mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"
#: A cached step whose files are gone. In a graph driver, steps that wrote the same bytes share one
#: layer; after a restart of the engine, it goes with the first of them that is pruned (Docker 28).
_LOST = re.compile(r"failed to prepare (\w+) as \w+: .*no such file or directory")
#: The `BuildFault` of a step that another build began, and did not live to end.
_OF_ANOTHER = "session"


@dataclass(frozen=True)
class BuildTarget:
    """One image, or the files of one stage.

    ``contexts`` are named build contexts: a folder, ``docker-image://NAME``, ``oci-layout://PATH``
    or ``target:NAME``, of a target that it ``needs``. ``target`` is the Dockerfile's stage, the
    last one by default. ``type=docker`` is the engine's own store, whichever kind it has.
    ``uncached`` are stages that are always built anew, and with them ``target``; with ``anew`` all
    are. ``cache`` is a reference in a registry where BuildKit finds and keeps all of its steps.
    """

    name: str
    context: Path
    dockerfile: Path
    contexts: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)
    target: str | None = None
    output: str = "type=docker"
    uncached: tuple[str, ...] = ()
    anew: bool = False
    needs: tuple["BuildTarget", ...] = ()
    cache: str | None = None


def bake_name(name: str) -> str:
    """Return the name of an image as bake allows it: ``tf-2.2-cpu`` is ``tf-2_2-cpu``.

    Bake takes only ``[a-zA-Z0-9_-]``; image names have no underscore, so no two names meet.
    """
    return name.replace(".", "_")


def bake_definition(target: BuildTarget, epoch: int | None = None) -> dict[str, object]:
    """Return the bake file of a target and what it needs.

    ``epoch`` is for every time stamp in the image (``SOURCE_DATE_EPOCH``), in seconds since 1970.
    """
    targets = sorted((target, *target.needs), key=lambda part: bake_name(part.name))
    definitions = {}
    for part in targets:
        name = bake_name(part.name)
        definitions[name] = _bake_target(part, epoch)
    group = {"targets": [bake_name(target.name)]}
    return {
        "group": {"default": group},
        "target": definitions,
    }


def _bake_target(target: BuildTarget, epoch: int | None) -> dict[str, object]:
    contexts = {}
    for name, context in sorted(target.contexts.items()):
        contexts[name] = _bake_context(context)
    args = {**target.args}
    if epoch is not None:
        args["SOURCE_DATE_EPOCH"] = str(epoch)
    secrets = [f"id={name},src={path}" for name, path in target.secrets.items()]
    outputs = [target.output] if target.output else []
    cache_from, cache_to = list[str](), list[str]()
    if target.cache:
        cache = f"type=registry,ref={target.cache}"
        cache_from.append(cache)
        cache_to.append(f"{cache},{_KEPT}")
    uncached = [*target.uncached]
    if uncached and target.target:  # else cached copies of earlier results can be exported
        uncached.append(target.target)
    keys: dict[str, object] = {
        "context": str(target.context.absolute()),
        "dockerfile": str(target.dockerfile.absolute()),
        "contexts": contexts,
        "args": _escape_values(args),
        "labels": _escape_values(target.labels),
        "secret": secrets,
        "target": target.target,
        "platforms": [IMAGE_PLATFORM],
        "output": outputs,
        "no-cache-filter": uncached,
        "no-cache": target.anew,
        "cache-from": cache_from,
        "cache-to": cache_to,
    }
    return {key: value for key, value in keys.items() if value}


def _bake_context(context: str) -> str:
    """Return a named context as bake knows it: another target goes by its bake name."""
    if context.startswith("target:"):
        name = context.removeprefix("target:")
        return f"target:{bake_name(name)}"
    return context


def _escape_values(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values so that bake does not evaluate ``${…}`` and ``%{…}`` in them."""
    escaped = {}
    for key, value in sorted(values.items()):
        text = value.replace("${", "$${")
        escaped[key] = text.replace("%{", "%%{")
    return escaped


def build_image(  # noqa: PLR0913 - what, and where its progress goes
    buildx: Buildx,
    target: BuildTarget,
    *,
    log: Path,
    show: Callable[[Step], None] = lambda _: None,
    epoch: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[str, float]:
    """Build an image, which gets no tag.

    Return its id and the sum of the times of the steps that were not cached, in seconds. The engine
    calls the image by the digest of its manifest in a containerd store, of its configuration in a
    graph driver.

    ``show`` gets each step that begins or ends, ``log`` everything. When it is interrupted,
    ``stopped()`` is true, or a step runs for longer than ``buildx.step_seconds``, the build is
    stopped in the engine too.

    BuildFailedError: a step failed or hung, a download has another sha256 than pinned, the disk is
        full, or the engine or an upstream cannot be reached.
    CancelledError: it was to stop.
    """
    with work_folder("bake") as folder:
        metadata = folder / "metadata.json"
        steps = _build(buildx, target, folder, log, show, epoch, stopped)
        images = {}
        if metadata.is_file():
            images = json.loads(metadata.read_text(encoding="utf-8"))
    image = images.get(bake_name(target.name), {})
    image_id = image.get("containerimage.digest")
    if buildx.builder:  # the engine may use another id than the builder, which buildx reports
        image_id = steps.image_id
    if image_id is None:
        raise MachineError(f"buildx built {target.name} but gave no image id.")
    return image_id, steps.work


def export_files(  # noqa: PLR0913 - likewise
    buildx: Buildx,
    target: BuildTarget,
    files: Path,
    *,
    log: Path,
    show: Callable[[Step], None] = lambda _: None,
    epoch: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> float:
    """Write the files of a stage into the folder ``files``; otherwise as `build_image`.

    Return the sum of the times of the steps that were not cached, in seconds.
    """
    target = replace(target, output=f"type=local,dest={files}")
    with work_folder("bake") as folder:
        steps = _build(buildx, target, folder, log, show, epoch, stopped)
    return steps.work


def forget_cache(buildx: Buildx, entries: str) -> None:
    """Remove entries of the build cache: by buildx's filter, such as ``id=IDENTIFIER``."""
    run_buildx(buildx, "prune", f"--filter={entries}", "--force", "--all")


def _build(  # noqa: PLR0913, PLR0917 - likewise
    buildx: Buildx,
    target: BuildTarget,
    folder: Path,
    log: Path,
    show: Callable[[Step], None],
    epoch: int | None,
    stopped: Callable[[], bool],
) -> BuildSteps:
    """Run buildx until the build succeeds, fails or is stopped; raises as `build_image`.

    It runs again where the cache has lost a layer, and where another build was stopped that had
    begun a step of this one.
    """
    definition = folder / "bake.json"
    text = json.dumps(bake_definition(target, epoch))
    definition.write_text(text, encoding="utf-8")
    command = [
        *(str(buildx.path), "bake", buildx.builder_option, "--progress=rawjson"),
        *(f"--file={definition}", f"--metadata-file={folder / 'metadata.json'}"),
    ]
    names = tuple(bake_name(part.name) for part in (target, *target.needs))
    log.parent.mkdir(parents=True, exist_ok=True)
    repaired = set[str]()
    with log.open("w", encoding="utf-8", buffering=1) as file:
        while not stopped():
            steps = BuildSteps(names, show, time.monotonic())
            with start(command, env=build_environment(buildx.host)) as process:
                ends_well = _follow(process, buildx, steps, file, stopped)
                succeeded = ends_well and process.wait() == 0
            if succeeded:
                return steps
            if stopped():
                break
            error = build_error(target.name, steps, log)
            fault = error.fault
            lost = _LOST.match(error.cause)
            cause = ""
            if lost:
                cause = lost[1]
            elif fault and fault.kind == _OF_ANOTHER:
                cause = _OF_ANOTHER
            if not cause or cause in repaired:
                raise error
            repaired.add(cause)
            if lost:
                forget_cache(buildx, f"id={cause}")
    raise CancelledError(f"the build of {target.name} was stopped")


def _follow(
    process: Process,
    buildx: Buildx,
    steps: BuildSteps,
    log: TextIO,
    stopped: Callable[[], bool],
) -> bool:
    """Read until the program ends; return false if it has to be stopped before."""
    asked_at, missed = time.monotonic(), 0
    for line in read_lines(process, LOOK_SECONDS):
        now = time.monotonic()
        if stopped():
            return False
        if line is not None:
            for text in steps.feed(line, now):
                _write(log, text)
        if late := steps.find_overdue(buildx.step_seconds, now):
            _write(log, f"{late.name}: {late.error}")
            return False
        # A machine that loses its power ends no connection.
        if buildx.builder and now - asked_at >= WATCH_SECONDS:
            missed = 0 if is_reachable(buildx) else missed + 1
            asked_at = time.monotonic()
            if missed == MISSED:
                steps.remarks.append(f"ERROR: the builder {buildx.builder} does not answer")
                return False
    return True


def _write(log: TextIO, text: str) -> None:
    now = datetime.now(UTC)
    log.write(f"{now:%Y-%m-%dT%H:%M:%SZ} {text}\n")
