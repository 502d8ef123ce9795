"""A build with caches: what others have built and tested is taken over, what is new is kept."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from imgbuild.build.context import BuildContext
from imgbuild.build.result import BuildResult
from imgbuild.build.wheels import KEY_DIGITS, wheel_key, wheel_store
from imgbuild.caches.protocol import BuildCache, Kind, WantedImage, report_key
from imgbuild.caches.several import Caches
from imgbuild.files import work_folder
from imgbuild.plan.plan import Action, PlanItem

#: More than these are counted, not named.
_NAMED = 4


def foreseen(items: Sequence[PlanItem], context: BuildContext) -> tuple[PlanItem, ...]:
    """Return the plan, telling of what is to be built which cache has it; nothing is fetched."""
    return tuple(_foreseen(item, context.caches) for item in items)


def _foreseen(item: PlanItem, caches: Caches) -> PlanItem:
    cache = caches.holder(wanted(item)) if item.action is Action.BUILD else None
    if cache is None:
        return item
    return replace(item, reason=f"{item.reason}; would be taken from the cache {cache.name}")


def restored(context: BuildContext) -> tuple[PlanItem, ...]:
    """Return what is left to do after the caches gave what they have.

    That is images, then the verdicts on images that are there, then wheels for those to be built.
    """
    test = context.options.test
    caches, items = context.caches, context.plan(test=test)
    if not caches.sources:
        return items
    missing = {wanted(item): item for item in items if item.action is Action.BUILD}
    found = caches.restore([*missing])
    came_from = {missing[image].image.name: cache for image, cache in found.items()}
    if found:
        items = context.plan(test=test)
    untested = [item for item in items if item.action is Action.TEST]
    judged = [item for item in untested if _take_verdicts(item, context)]
    if judged:
        items = context.plan(test=test)
    _take_wheels([item for item in items if item.action is Action.BUILD], context)
    return tuple(_told(item, came_from.get(item.image.name)) for item in items)


@contextmanager
def releasing(items: Iterable[PlanItem], caches: Caches) -> Iterator[None]:
    """Take the caches' own names away after the block, from images that have got another one."""
    ids = {item.image_id for item in items if item.image_id}

    def release(cache: BuildCache) -> None:
        for image_id in ids:
            cache.release(image_id)

    try:
        yield
    finally:
        for cache in caches.all:
            caches.attempt(cache, "left a name on the engine", release, None)


def keep(results: Sequence[BuildResult], context: BuildContext) -> None:
    """Keep what the caches lack: images that have their names, their verdicts, and wheels."""
    caches = context.caches
    for cache in caches.targets:
        kept: list[str] = []

        def write(one: BuildCache, kept: list[str] = kept) -> None:
            kept.extend(_keep(results, context, one))

        caches.attempt(cache, "cannot be written", write, None)
        if kept:
            caches.say(f"Kept in the cache {cache.name}: {_listed(kept)}.")


def _listed(kept: Sequence[str]) -> str:
    wheels = sum(name.endswith(".whl") for name in kept)
    images = len(kept) - wheels
    return ", ".join(kept) if len(kept) <= _NAMED else f"{images} images, {wheels} wheels"


def wanted(item: PlanItem) -> WantedImage:
    """Return a plan's image as caches know it."""
    return WantedImage(item.image.name, item.digest.total, item.image.repository)


def _told(item: PlanItem, cache: BuildCache | None) -> PlanItem:
    if cache is None or item.action not in {Action.NAME, Action.TEST}:
        return item
    untested = ", not tested yet" if item.action is Action.TEST else ""
    return replace(item, reason=f"taken from the cache {cache.name}{untested}")


def _take_verdicts(item: PlanItem, context: BuildContext) -> bool:
    image_id = item.image_id or ""
    with work_folder("cache") as folder:
        path = context.caches.read(Kind.REPORT, _report_key(item, image_id, context), folder)
        suites = _suites_of(path.read_bytes()) if path else {}
    if suites:
        context.store.adopt(image_id, suites)
    return bool(suites)


def _take_wheels(items: Sequence[PlanItem], context: BuildContext) -> None:
    store = wheel_store(context)
    for key in _keys(items, context):
        if store.find(key) is None:
            with work_folder("cache") as folder:
                if context.caches.read(Kind.WHEEL, key[:KEY_DIGITS], folder):
                    store.adopt(key, folder)


def _keys(items: Iterable[PlanItem], context: BuildContext) -> set[str]:
    return {key for item in items if (key := wheel_key(item.image, context))}


def _keep(
    results: Sequence[BuildResult], context: BuildContext, cache: BuildCache
) -> Iterator[str]:
    for result in results:
        image_id = result.image_id
        image = wanted(result.item)
        if result.ok and image_id:
            if not context.caches.gave(cache, image) and not cache.has_image(image):
                cache.save_image(image, image_id)
                yield image.name
            _keep_verdicts(result.item, image_id, context, cache)
    for key in _keys([result.item for result in results], context):
        folder = wheel_store(context).find(key)
        if folder and not cache.has(Kind.WHEEL, key[:KEY_DIGITS]):
            (wheel,) = folder.iterdir()
            cache.write(Kind.WHEEL, key[:KEY_DIGITS], wheel)
            yield wheel.name


def _keep_verdicts(item: PlanItem, image_id: str, context: BuildContext, cache: BuildCache) -> None:
    """Keep what the suites found, unless it is kept.

    Of an image that nothing was done for, no verdict is newer than those that are there.
    """
    suites = context.store.document(image_id)
    if not suites:
        return
    key = _report_key(item, image_id, context)
    if item.action is Action.NOTHING and cache.has(Kind.REPORT, key):
        return
    with work_folder("cache") as folder:
        known = context.caches.report(cache, key, folder)
        if known is None or _verdicts(_suites_of(known)) != _verdicts(suites):
            path = folder / "report.json"
            path.write_text(json.dumps({"suites": suites}, indent=1), encoding="utf-8")
            cache.write(Kind.REPORT, key, path)


def _report_key(item: PlanItem, image_id: str, context: BuildContext) -> str:
    stored = context.engine.inspect(image_id)
    return report_key(item.digest.total, stored.layers if stored else ())


def _suites_of(report: bytes) -> dict[str, Any]:
    try:
        suites = json.loads(report)["suites"]
    except (ValueError, KeyError, TypeError):
        return {}
    return suites if isinstance(suites, dict) else {}


def _verdicts(suites: dict[str, Any]) -> list[tuple[str, object, object]]:
    """Return what counts of a report: it is the same if only times are others."""
    entries = {name: entry for name, entry in suites.items() if isinstance(entry, dict)}
    return sorted((name, one.get("key"), one.get("verdict")) for name, one in entries.items())
