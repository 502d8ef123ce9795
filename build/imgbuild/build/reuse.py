"""Take images, wheels and verdicts from remote stores, and store new ones there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import WheelStore, wheel_file_name, wheel_key
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


def _predicted(item: PlanItem, context: BuildContext) -> PlanItem:
    for store in _working(context.sources) if item.action is Action.BUILD else ():
        with store.used(_READ):
            if store.has_image(item):
                return replace(item, reason=f"{item.reason}; would be taken from {store.name}")
    return item


def _working(stores: Iterable[RemoteStore]) -> Iterator[RemoteStore]:
    return (store for store in stores if not store.failed)


def take(items: Sequence[PlanItem], context: BuildContext) -> tuple[PlanItem, ...]:
    """Return what is left to do after the remote stores gave what they have.

    That is images with their verdicts, verdicts on images that the engine has, and wheels for the
    images to be built.
    """
    came_from: dict[str, RemoteStore] = {}
    judged = False
    for item in items if context.sources else ():
        if item.action is Action.BUILD and (store := _pull(item, context)):
            came_from[item.image.name] = store
        elif item.action is Action.TEST:
            judged = _take_verdicts(item, item.image_id or "", context) or judged
    if came_from or judged:
        items = context.plan(test=context.options.test)
    _take_wheels([item for item in items if item.action is Action.BUILD], context)
    return tuple(_explained(item, came_from.get(item.image.name)) for item in items)


def _pull(item: PlanItem, context: BuildContext) -> RemoteStore | None:
    for store in _working(context.sources):
        with store.used(_READ):
            found = store.pull(item)
            if found:
                _take_verdicts(item, found.id, context)
                return store
    return None


def _take_verdicts(item: PlanItem, image_id: str, context: BuildContext) -> bool:
    stored = context.engine.inspect(image_id)
    for store in _working(context.sources) if stored else ():
        with store.used(_READ):
            suites = store.verdicts(item.digest.total, stored.layers if stored else ())
            if suites:
                context.store.adopt(image_id, suites)
                return True
    return False


def _take_wheels(items: Iterable[PlanItem], context: BuildContext) -> None:
    if not context.sources:
        return
    wheels = WheelStore(context.cache)
    for key in _wheel_keys(items, context):
        for store in _working(context.sources):
            with store.used(_READ), work_folder("wheel") as folder:
                content = None if wheels.find(key) else store.wheel(key)
                name = wheel_file_name(BytesIO(content)) if content else None
                if content and name:
                    (folder / name).write_bytes(content)
                    wheels.adopt(key, folder)


def _wheel_keys(items: Iterable[PlanItem], context: BuildContext) -> list[str]:
    keys = (wheel_key(item.image, context) for item in items)
    return [*dict.fromkeys(key for key in keys if key)]


def _explained(item: PlanItem, store: RemoteStore | None) -> PlanItem:
    if store is None or item.action not in {Action.NAME, Action.TEST}:
        return item
    untested = ", not tested yet" if item.action is Action.TEST else ""
    return replace(item, reason=f"taken from {store.name}{untested}")


def release(items: Iterable[PlanItem], context: BuildContext) -> None:
    """Take the stores' tags away from images that have got another one."""
    for store in _working((*context.sources, *context.targets)):
        with store.used("left a tag on the engine"):
            for image_id in {item.image_id for item in items if item.image_id}:
                store.release(image_id)


def keep(results: Sequence[BuildResult], context: BuildContext) -> None:
    """Keep what the remote stores lack: tagged images, their verdicts, and wheels."""
    tagged = [one for one in results if one.ok and one.image_id]
    for store in _working(context.targets):
        kept: list[str] = []
        with store.used(_WRITTEN):
            kept.extend(_keep_images(tagged, context, store))
            kept.extend(_keep_wheels(results, context, store))
        if kept:
            wheels = sum(name.endswith(".whl") for name in kept)
            counted = f"{len(kept) - wheels} images, {wheels} wheels"
            listed = ", ".join(kept) if len(kept) <= _NAMED else counted
            context.say(f"Kept in {store.name}: {listed}.")


def _keep_images(
    tagged: Iterable[BuildResult], context: BuildContext, store: RemoteStore
) -> Iterator[str]:
    for result in tagged:
        item, image_id = result.item, result.image_id or ""
        if not store.has_image(item):
            store.push(item, image_id)
            yield result.name
        stored = context.engine.inspect(image_id)
        if stored:
            suites = context.store.document(image_id)
            store.keep_verdicts(item.digest.total, stored.layers, suites)


def _keep_wheels(
    results: Iterable[BuildResult], context: BuildContext, store: RemoteStore
) -> Iterator[str]:
    for key in _wheel_keys((result.item for result in results), context):
        folder = WheelStore(context.cache).find(key)
        wheel = next(folder.iterdir()) if folder else None
        if wheel and store.keep_wheel(key, wheel.read_bytes()):
            yield wheel.name
