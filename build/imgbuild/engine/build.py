"""Build one image or stage with ``docker buildx bake``, and report its progress and failures."""

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
from imgbuild.engine.types import AMD64

#: The longest wait for a line of buildx before the time limits are checked, in seconds.
LOOK_SECONDS = 1.0
#: Seconds between two checks that a builder other than the engine's own is reachable, and how many
#: checks in a row must fail to stop the build. On a busy machine, one answer can come too late.
WATCH_SECONDS, MISSED = 15.0, 2
#: Options for the export of BuildKit's cache: keep every step, use the format that all registries
#: accept, and do not fail the build if the export fails.
_KEPT = "mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"
#: BuildKit's error for a cached step whose layer is gone. In a graph driver, steps that wrote the
#: same bytes share one layer. After a restart of the engine, pruning one of these steps deletes the
#: layer of all of them (Docker 28).
_LOST = re.compile(r"failed to prepare (\w+) as \w+: .*no such file or directory")
#: The kind of the `BuildFault` that occurs if another build started the same step and was stopped
#: before the step ended.
_OF_ANOTHER = "session"


@dataclass(frozen=True)
class BuildTarget:
    """An image to build, or a stage whose files to export.

    - ``contexts``: named build contexts; each is a folder, ``docker-image://NAME``,
      ``oci-layout://PATH``, or ``target:NAME`` for a target in ``needs``
    - ``target``: stage of the Dockerfile; the last one by default
    - ``output``: ``type=docker`` is the engine's own store, a graph driver or containerd
    - ``uncached``: stages that are always built again; if there are any, ``target`` is as well
    - ``anew``: do not use the cache for any stage
    - ``cache``: reference in a registry where BuildKit reads and writes its cache of all steps
    - ``platform``: as Docker names it
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
    platform: str = AMD64


def bake_name(name: str) -> str:
    """Return an image's name in the form that bake accepts: ``tf-2_2-cpu`` for ``tf-2.2-cpu``.

    Bake accepts only ``[a-zA-Z0-9_-]``. Image names have no underscores, so the results are unique.
    """
    return name.replace(".", "_")


def bake_definition(target: BuildTarget, epoch: int | None = None) -> dict[str, object]:
    """Return the bake file for a target and the targets that it needs.

    ``epoch`` sets every time stamp in the image (``SOURCE_DATE_EPOCH``), in seconds since 1970.
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
    if uncached and target.target:  # else bake can export an earlier result from its cache
        uncached.append(target.target)
    keys: dict[str, object] = {
        "context": str(target.context.absolute()),
        "dockerfile": str(target.dockerfile.absolute()),
        "contexts": contexts,
        "args": _escape_values(args),
        "labels": _escape_values(target.labels),
        "secret": secrets,
        "target": target.target,
        "platforms": [target.platform],
        "output": outputs,
        "no-cache-filter": uncached,
        "no-cache": target.anew,
        "cache-from": cache_from,
        "cache-to": cache_to,
    }
    return {key: value for key, value in keys.items() if value}


def _bake_context(context: str) -> str:
    """Return a named context for bake, with the bake name in ``target:NAME``."""
    if context.startswith("target:"):
        name = context.removeprefix("target:")
        return f"target:{bake_name(name)}"
    return context


def _escape_values(values: Mapping[str, str]) -> dict[str, str]:
    """Escape ``${…}`` and ``%{…}`` in the values, so that bake does not evaluate them."""
    escaped = {}
    for key, value in sorted(values.items()):
        text = value.replace("${", "$${")
        escaped[key] = text.replace("%{", "%%{")
    return escaped


def build_image(  # noqa: PLR0913 - the options of one build
    buildx: Buildx,
    target: BuildTarget,
    *,
    log: Path,
    show: Callable[[Step], None] = lambda _: None,
    epoch: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[str, float]:
    """Build an image without a tag.

    Return the image's id, and the total time of the steps that did work (`Step.has_worked`), in
    seconds. In a containerd store, the id is the digest of the manifest. In a graph driver, it is
    the digest of the configuration.

    ``show`` is called with each step that starts or ends. ``log`` is the file for the whole output.
    If the call is interrupted, ``stopped()`` returns true, or a step runs for longer than
    ``buildx.step_seconds``, the build is also stopped in the engine.

    BuildFailedError: a step failed or hung, a download does not have the pinned sha256, the disk is
        full, or the engine or an upstream cannot be reached.
    CancelledError: ``stopped()`` returned true.
    MachineError: buildx did not report the image's id.
    """
    with work_folder("bake") as folder:
        metadata = folder / "metadata.json"
        steps = _build(buildx, target, folder, log, show, epoch, stopped)
        images = {}
        if metadata.is_file():
            images = json.loads(metadata.read_text(encoding="utf-8"))
    image = images.get(bake_name(target.name), {})
    image_id = image.get("containerimage.digest")
    if buildx.builder:  # buildx reports the builder's id; the engine's can differ
        image_id = steps.image_id
    if image_id is None:
        raise MachineError(f"buildx built {target.name} but did not report its image id.")
    return image_id, steps.work


def export_files(  # noqa: PLR0913 - the same options
    buildx: Buildx,
    target: BuildTarget,
    files: Path,
    *,
    log: Path,
    show: Callable[[Step], None] = lambda _: None,
    epoch: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> float:
    """Export the files of a stage to the folder ``files``.

    Return the total time of the steps that did work (`Step.has_worked`), in seconds. The other
    parameters and the errors are the same as in `build_image`.
    """
    target = replace(target, output=f"type=local,dest={files}")
    with work_folder("bake") as folder:
        steps = _build(buildx, target, folder, log, show, epoch, stopped)
    return steps.work


def forget_cache(buildx: Buildx, entries: str) -> None:
    """Remove the entries of the build cache that match a buildx filter, for example ``id=ID``."""
    run_buildx(buildx, "prune", f"--filter={entries}", "--force", "--all")


def _build(  # noqa: PLR0913, PLR0917 - the same options
    buildx: Buildx,
    target: BuildTarget,
    folder: Path,
    log: Path,
    show: Callable[[Step], None],
    epoch: int | None,
    stopped: Callable[[], bool],
) -> BuildSteps:
    """Run buildx until the build succeeds, fails or is stopped; raise the errors of `build_image`.

    Run buildx again if the cache has lost a layer, or if another build had started one of the steps
    and was stopped. Retry only once for each lost layer, and once for a stopped build.
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
    """Read the output until buildx ends; return False if it must be stopped before that."""
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
        # If the builder's machine loses power, the connection stays open and buildx waits forever.
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
