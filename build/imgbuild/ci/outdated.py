"""Find published images that lack security fixes, by the packages that their records list."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.publish.record import Record, read_published
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.scan.updates import find_updates, make_status

#: So many packages are named in a reason.
_NAMED = 3


def outdated_images(
    project: Project,
    images: tuple[Image, ...],
    registry: RegistryClient,
    log: Callable[[str], None],
) -> dict[str, str]:
    """Return the reason for each image whose latest release lacks security fixes, by its name.

    The archive of each operating system is asked once, for the packages of all its images. An image
    that was published before records listed these is not known to lack any.

    CheckFailedError: an archive cannot be reached. MachineError: there is no engine.
    """
    latest = {one.image: one for one in read_published(registry).whole}
    known = [image for image in images if image.name in latest and latest[image.name].system]
    found: dict[str, str] = {}
    if known:
        with open_context(project, tuple(known), BuildOptions(), log) as context:
            for os_name, same in groupby(
                sorted(context.images, key=lambda one: one.os_name), lambda one: one.os_name
            ):
                names = [image.name for image in same]
                # As old as can be, so that apt names the newest version of every package.
                packages = {name: "0" for one in names for name in latest[one].system}
                status = make_status(packages)
                updates = find_updates(f"updates-{os_name}", os_name, status, context)
                fixes = {one.package: one.available for one in updates if one.security}
                for name in names:
                    if lacking := [*_lacking(latest[name], fixes)]:
                        found[name] = f"published without security fixes of {_listed(lacking)}"
    return found


def _lacking(record: Record, fixes: Mapping[str, str]) -> Iterable[str]:
    return (name for name, version in record.system.items() if fixes.get(name, version) != version)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
