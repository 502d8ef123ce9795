"""Find published images that lack security fixes, from the packages in their records."""

import re
from collections.abc import Callable, Mapping

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.core.project import Project
from imgbuild.matrix.images import Image, for_amd64
from imgbuild.net.repository_client import RegistryClient
from imgbuild.publish.record import Record, read_published
from imgbuild.scan.updates import find_updates, make_status

#: Maximum number of packages in a reason.
_NAMED = 3


def outdated_images(
    project: Project,
    images: tuple[Image, ...],
    registry: RegistryClient,
    log: Callable[[str], None],
) -> dict[str, str]:
    """Return the reason for each image whose latest release lacks security fixes, by name.

    The archive of each operating system is queried once, for the packages of all its images. Images
    whose records list no packages are skipped, because older versions did not record them.

    CheckFailedError: an archive cannot be reached.
    MachineError: there is no engine.
    """
    latest = {record.image: record for record in read_published(registry).whole}
    known = [image for image in images if image.name in latest and latest[image.name].system]
    reasons: dict[str, str] = {}
    if not known:
        return reasons
    # Only apt's lists for amd64 are read: security fixes have the same source versions for arm64.
    own = tuple(dict.fromkeys(map(for_amd64, known)))
    with open_context(project, own, BuildOptions(), log) as context:
        names_by_system: dict[str, list[str]] = {}
        for image in known:
            names_by_system.setdefault(image.os_name, []).append(image.name)
        for os_name, names in sorted(names_by_system.items()):
            packages: dict[str, str] = {}
            for name in names:
                # Use the lowest version, so that apt lists the newest version of every package.
                packages |= dict.fromkeys(latest[name].system, "0")
            status = make_status(packages)
            updates = find_updates(f"updates-{os_name}", os_name, status, context)
            fixes = {update.package: update.available for update in updates if update.security}
            for name in names:
                if lacking := _lacking_fixes(latest[name], fixes):
                    reasons[name] = f"published without security fixes of {_brief(lacking)}"
    return reasons


def _lacking_fixes(record: Record, fixes: Mapping[str, str]) -> list[str]:
    lacking = []
    for name, version in record.system.items():
        if _source_version(fixes.get(name, version)) != _source_version(version):
            lacking.append(name)
    return lacking


def _source_version(version: str) -> str:
    """Return a version without the number of a rebuild, which one architecture may have alone.

    Source: Debian Developer's Reference, "Binary NMUs".
    """
    return re.sub(r"\+b[0-9]+$", "", version)


def _brief(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
