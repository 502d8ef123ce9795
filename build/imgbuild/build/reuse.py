"""Take images, wheels and verdicts from remote stores, and store new ones there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import wheel_file_name, wheel_key, wheel_store
from imgbuild.build.remote import RemoteStore
from imgbuild.build.result import BuildResult
from imgbuild.files import work_folder
from imgbuild.plan.plan import Action, PlanItem

_READ, _WRITTEN = "cannot be read", "cannot be written"
#: More than these are counted, not named.
_NAMED = 4


def predicted(items: Sequence[PlanItem], context: BuildContext) -> tuple[PlanItem, ...]:
    """Return the plan; the reason of an image to be built says where it is. Nothing is fetched."""
    return tuple(_predicted(item, context) for item in items)


def _sources(context: BuildContext) -> tuple[RemoteStore, ...]:
    return context.remotes.sources if context.remotes else ()


def _predicted(item: PlanItem, context: BuildContext) -> PlanItem:
    for store in _sources(context) if item.action is Action.BUILD else ():
        if store.attempt(_READ, partial(store.has_image, item), otherwise=False):
            return replace(item, reason=f"{item.reason}; would be taken from {store.name}")
    return item


def take(context: BuildContext) -> tuple[PlanItem, ...]:
    """Return what is left to do after the remote stores gave what they have.

    That is images with their verdicts, verdicts on images that the engine has, and wheels for the
    images to be built. The plan is decided again only if something came.
    """
    test = context.options.test
    items = context.plan(test=test)
    if not _sources(context):
        return items
    came_from: dict[str, RemoteStore] = {}
    judged = False
    for item in items:
        if item.action is Action.BUILD and (store := _pull(item, context)):
            came_from[item.image.name] = store
        elif item.action is Action.TEST:
            judged = _take_verdicts(item, item.image_id or "", context) or judged
    if came_from or judged:
        items = context.plan(test=test)
    _take_wheels([item for item in items if item.action is Action.BUILD], context)
    return tuple(_explained(item, came_from.get(item.image.name)) for item in items)


def _pull(item: PlanItem, context: BuildContext) -> RemoteStore | None:
    for store in _sources(context):
        found = store.attempt(_READ, partial(store.pull, item), None)
        if found:
            _take_verdicts(item, found.id, context)
            return store
    return None


def _take_verdicts(item: PlanItem, image_id: str, context: BuildContext) -> bool:
    stored = context.engine.inspect(image_id)
    layers = stored.layers if stored else ()
    none: Mapping[str, Any] = {}
    for store in _sources(context) if stored else ():
        suites = store.attempt(_READ, partial(store.verdicts, item.digest.total, layers), none)
        if suites:
            context.store.adopt(image_id, suites)
            return True
    return False


def _take_wheels(items: Iterable[PlanItem], context: BuildContext) -> None:
    wheels = wheel_store(context)
    for key in _wheel_keys(items, context):
        for store in _sources(context) if wheels.find(key) is None else ():
            content = store.attempt(_READ, partial(store.wheel, key), None)
            name = wheel_file_name(content) if content else None
            if content and name:
                with work_folder("wheel") as folder:
                    (folder / name).write_bytes(content)
                    wheels.adopt(key, folder)
                break


def _wheel_keys(items: Iterable[PlanItem], context: BuildContext) -> list[str]:
    keys = (wheel_key(item.image, context) for item in items)
    return [*dict.fromkeys(key for key in keys if key)]


def _explained(item: PlanItem, store: RemoteStore | None) -> PlanItem:
    if store is None or item.action not in {Action.NAME, Action.TEST}:
        return item
    untested = ", not tested yet" if item.action is Action.TEST else ""
    return replace(item, reason=f"taken from {store.name}{untested}")


@contextmanager
def releasing(items: Iterable[PlanItem], context: BuildContext) -> Iterator[None]:
    """Take the stores' tags away after the block, from images that have got another one."""
    try:
        yield
    finally:
        for store in context.remotes.all if context.remotes else ():
            for image_id in {item.image_id for item in items if item.image_id}:
                store.attempt("left a tag on the engine", partial(store.release, image_id), None)


def keep(results: Sequence[BuildResult], context: BuildContext) -> None:
    """Keep what the remote stores lack: tagged images, their verdicts, and wheels."""
    for store in context.remotes.targets if context.remotes else ():
        kept: list[str] = []
        store.attempt(_WRITTEN, partial(kept.extend, _keep(results, context, store)), None)
        if kept:
            context.say(f"Kept in {store.name}: {_listed(kept)}.")


def _keep(
    results: Sequence[BuildResult], context: BuildContext, store: RemoteStore
) -> Iterator[str]:
    for result in results:
        item, image_id = result.item, result.image_id
        if not result.ok or not image_id:
            continue
        if item.digest.total not in store.known and not store.has_image(item):
            store.push(item, image_id)
            yield result.name
        stored = context.engine.inspect(image_id)
        if stored:
            suites = context.store.document(image_id)
            store.keep_verdicts(item.digest.total, stored.layers, suites)
    for key in _wheel_keys((result.item for result in results), context):
        folder = wheel_store(context).find(key)
        wheel = next(folder.iterdir()) if folder else None
        if wheel and store.keep_wheel(key, wheel.read_bytes()):
            yield wheel.name


def _listed(kept: Sequence[str]) -> str:
    wheels = sum(name.endswith(".whl") for name in kept)
    return (
        ", ".join(kept) if len(kept) <= _NAMED else f"{len(kept) - wheels} images, {wheels} wheels"
    )
