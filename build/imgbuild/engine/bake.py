"""Build images with ``docker buildx bake``: run it, follow it, say what failed."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from imgbuild.engine.discovery import Buildx, asked, build_environment
from imgbuild.engine.failure import BuildRecord
from imgbuild.engine.progress import (
    BakeBegun,
    BakeEvent,
    BuildEvent,
    Item,
    ProgressParser,
    Remark,
    StepOutput,
    bake_name,
    is_export,
    log_line,
)
from imgbuild.engine.types import IMAGE_PLATFORM
from imgbuild.errors import ImgbuildError, MachineError
from imgbuild.files import work_folder
from imgbuild.process import Process, lines_of, start
from imgbuild.text import duration_text

#: How often a waiting reader looks at the clock, in seconds, while steps run.
LOOK_SECONDS = 1.0
#: Steps that began within so many seconds began together.
TOGETHER_SECONDS = 1.0
#: What a step writes every 10 s while it waits for another to compile, and when its turn has come.
#: Source: images/files/compiling.sh.
WAITS = "imgbuild: waits for a place to compile"
GOES_ON = "imgbuild: has a place to compile"
#: How BuildKit keeps its cache: every step, in the form that all registries take; one that cannot
#: be written fails no build.
_KEPT = "mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"
#: A cached step whose files are gone. In a graph driver, steps that wrote the same bytes share one
#: layer; after a restart of the engine, it goes with the first of them that is pruned (Docker 28).
_LOST = re.compile(r"failed to prepare (\w+) as \w+: .*no such file or directory")


@dataclass(frozen=True)
class BakeTarget:
    """One image to build.

    ``contexts`` are named build contexts: a folder, ``docker-image://NAME`` or ``target:IMAGE``.
    ``target`` is the Dockerfile stage, the last one by default. ``type=docker`` is the engine's own
    store, whichever kind it has. ``uncached`` are stages that are always built anew; with ``anew``
    all are. ``linked`` is built only for the targets whose contexts name it; ``needs`` are such
    targets that this one's contexts name. ``cache`` is a reference in a registry where BuildKit
    finds and keeps all of its steps.
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
    linked: bool = False
    needs: tuple["BakeTarget", ...] = ()
    cache: str | None = None


def bake_definition(
    targets: Sequence[BakeTarget], epoch: int | None = None
) -> dict[str, dict[str, object]]:
    """Return the definition, in an order that depends on nothing but the targets.

    ``epoch`` is for every time stamp in the images (``SOURCE_DATE_EPOCH``), in seconds since 1970.
    """
    default = [bake_name(target.name) for target in targets if not target.linked]
    described = {bake_name(target.name): _described(target, epoch) for target in targets}
    return {
        "group": {"default": {"targets": sorted(default)}},
        "target": dict(sorted(described.items())),
    }


def _described(target: BakeTarget, epoch: int | None) -> dict[str, object]:
    stamp = {} if epoch is None else {"SOURCE_DATE_EPOCH": str(epoch)}
    described: dict[str, object] = {
        "context": str(target.context.absolute()),
        "dockerfile": str(target.dockerfile.absolute()),
        "contexts": {name: _context(where) for name, where in sorted(target.contexts.items())},
        "args": _literals({**target.args, **stamp}),
        "labels": _literals(target.labels),
        "secret": [f"id={name},src={path}" for name, path in target.secrets.items()],
        "target": target.target,
        "platforms": [IMAGE_PLATFORM],
        "output": [target.output] if target.output else [],
        "no-cache-filter": list(target.uncached),
        "no-cache": target.anew,
        "cache-from": [f"type=registry,ref={target.cache}"] if target.cache else [],
        "cache-to": [f"type=registry,ref={target.cache},{_KEPT}"] if target.cache else [],
    }
    return {key: value for key, value in described.items() if value}


def _context(where: str) -> str:
    """Return a named context as bake knows it: another image goes by its bake name."""
    kind, colon, image = where.partition(":")
    return f"target:{bake_name(image)}" if kind == "target" and colon else where


def _literals(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values so that bake does not evaluate ``${…}`` and ``%{…}`` in them."""
    return {
        key: value.replace("${", "$${").replace("%{", "%%{")
        for key, value in sorted(values.items())
    }


@dataclass(frozen=True)
class BuiltImage:
    """A built image, without a name yet.

    ``image_id`` is what the engine calls it: the digest of the manifest in a containerd store, of
    the configuration in a graph driver. ``seconds`` is the wall time from its first step that was
    not cached to its export, ``work`` the sum of the times of all these steps.
    """

    image_id: str
    seconds: float | None = None
    work: float = 0.0


class BakeCancelledError(ImgbuildError):
    """A build was stopped by who asked for it; nothing of it failed."""


@dataclass
class StepLimit:
    """Knows which steps run, and since when. ``seconds`` is the limit; 0 is none.

    What a step waits for a place to compile does not count: the steps that have the places may be
    the ones that hang. A build in which no step runs, or all of them wait, has the same time to say
    something: buildx or the engine can hang between steps too.
    """

    seconds: float
    now: float
    #: Since when each step runs, by its number; ``None`` while it waits.
    _since: dict[int, float | None] = field(default_factory=dict)
    #: What was said last of each of them, by target.
    _events: dict[int, dict[str | None, BuildEvent]] = field(default_factory=dict)

    def apply(self, item: Item, now: float) -> None:
        self.now = now
        if isinstance(item, StepOutput) and item.number in self._since:
            if item.text.strip() == WAITS:
                self._since[item.number] = None
            elif item.text.strip() == GOES_ON:
                self._since[item.number] = now
        elif isinstance(item, BuildEvent) and item.state == "running":
            self._since.setdefault(item.number, now)
            self._events.setdefault(item.number, {})[item.target] = item
        elif isinstance(item, BuildEvent) and item.state != "planned":
            self._since.pop(item.number, None)
            self._events.pop(item.number, None)

    def wait(self, now: float) -> float:
        """Return how long a reader may sleep before it has to look again."""
        left = self._first() - now if self.seconds else LOOK_SECONDS
        return max(0.01, min(LOOK_SECONDS, left))

    def exceeded(self, now: float) -> list[BuildEvent]:
        """Return a failure for each target of the steps that ran too long, none if all is well.

        Without any running step, the failure of a build that has said nothing for so long is bake's
        own.
        """
        if not self.seconds or now < self._first():
            return []
        limit = duration_text(self.seconds)
        end = f"for more than {limit} (the limit of a step)"
        return [
            BuildEvent(event.target, event.step, "failed", now - since, number, f"ran {end}")
            for number, since in self._since.items()
            if since is not None and now - since >= self.seconds
            for event in self._events[number].values()
        ] or [
            BuildEvent(None, "", "failed", now - self.now, error=f"the engine said nothing {end}")
        ]

    def _first(self) -> float:
        """Return when the first limit is reached, by all steps that began with the first one.

        Those that hang together are blamed together, though their events come one by one.
        """
        running = [since for since in self._since.values() if since is not None] or [self.now]
        earliest = min(running)
        return max(since for since in running if since < earliest + TOGETHER_SECONDS) + self.seconds


def run_bake(  # noqa: PLR0913  # where, what, and where its progress goes
    buildx: Buildx,
    host: str | None,
    targets: Sequence[BakeTarget],
    *,
    log: Path,
    listener: Callable[[BakeEvent], None],
    epoch: int | None = None,
    exported: Callable[[str, BuiltImage], None] = lambda *_: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, BuiltImage]:
    """Build the targets, those that they need too, and return those that are images, by name.

    The images get no tags; ``exported`` gets each as soon as the engine has it. When it is
    interrupted, ``stopped()`` is true, or a step runs for longer than ``buildx.step_seconds``, the
    build is stopped in the engine too.

    BakeCancelledError: it was to stop.
    BuildFailedError: a step failed or hung, or a download has another sha256 than pinned.
    BuildStoppedError: the disk is full, or the engine or an upstream cannot be reached.
    """

    def built_image(name: str, image_id: str) -> BuiltImage:
        return BuiltImage(image_id, record.seconds(name), record.work(name))

    def tell(event: BakeEvent) -> None:
        listener(event)
        match event:
            case BuildEvent(state="done", target=str(name)) if is_export(event.step):
                if image_id := record.images.get(name):
                    exported(name, built_image(name, image_id))

    if not targets:
        return {}
    targets = [*targets, *{one.name: one for target in targets for one in target.needs}.values()]
    log.parent.mkdir(parents=True, exist_ok=True)
    with work_folder("bake") as folder, log.open("w", encoding="utf-8", buffering=1) as file:
        definition, metadata = folder / "bake.json", folder / "metadata.json"
        definition.write_text(json.dumps(bake_definition(targets, epoch)), encoding="utf-8")
        command = [
            *(str(buildx.path), "bake", buildx.builder_option, "--progress=rawjson"),
            *(f"--file={definition}", f"--metadata-file={metadata}"),
        ]
        names = tuple(target.name for target in targets)
        forgotten: set[str] = set()
        while True:
            record = BuildRecord(names)
            listener(BakeBegun(names, buildx.builder))
            with start(command, env=build_environment(host)) as process:
                limit = StepLimit(buildx.step_seconds, time.monotonic())
                hung = _follow(process, limit, record, file, tell, stopped)
                code = 1 if hung else process.wait()
            if code == 0:
                break
            error = record.error(log)
            lost = _LOST.match(error.failure.error)
            if not lost or lost[1] in forgotten:
                raise error
            forgotten.add(lost[1])
            forget_cache(f"id={lost[1]}", buildx, host)
        found = json.loads(metadata.read_text(encoding="utf-8")) if metadata.is_file() else {}
    names = tuple(one.name for one in targets if one.output.startswith("type=docker"))
    return {name: built_image(name, _image_id(name, record, found, buildx)) for name in names}


def _image_id(
    name: str, record: BuildRecord, found: Mapping[str, Mapping[str, str]], buildx: Buildx
) -> str:
    """Return what the engine calls an image: as buildx tells, of its own builder's alone."""
    told = found.get(bake_name(name), {}).get("containerimage.digest")
    image_id = record.images.get(name) if buildx.builder else told
    if image_id is None:
        raise MachineError(f"buildx built {name} but gave no image id.")
    return image_id


def forget_cache(entries: str, buildx: Buildx, host: str | None) -> None:
    """Take entries out of the build cache: by buildx's filter, such as ``id=IDENTIFIER``."""
    asked("prune", buildx, host, f"--filter={entries}", "--force", "--all")


def _follow(  # noqa: PLR0913, PLR0917 - what is read, who hears of it, what ends it
    process: Process,
    limit: StepLimit,
    record: BuildRecord,
    log: TextIO,
    listener: Callable[[BakeEvent], None],
    stopped: Callable[[], bool],
) -> bool:
    """Read until the program ends, or a step reaches the limit; return whether one did."""
    parser = ProgressParser(record.targets)
    for line in lines_of(process, lambda: limit.wait(time.monotonic())):
        if stopped():
            raise BakeCancelledError("cancelled, since another image failed")
        items = parser.feed(line or "")
        now = time.monotonic()
        for item in items:
            limit.apply(item, now)
        late = limit.exceeded(now)
        for item in (*items, *late):
            record.add(item, now)
            if text := log_line(item):
                log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n")
            if not isinstance(item, Remark | StepOutput):
                listener(item)
        if late:
            return True
    return False
