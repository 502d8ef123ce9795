"""Query the archive of an image's distribution for newer packages, in a build step.

The step runs on the engine's machine, in the base image of the same system and platform, with its
apt sources and keys. It uses the CA, the logins and the mirrors of the settings. Its only input is
the image's list of installed packages, so any image can be scanned.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from imgbuild.build.context import BuildContext
from imgbuild.build.image_build import export_stage
from imgbuild.build.prepare import provide_archive_base
from imgbuild.core.errors import CheckFailedError
from imgbuild.core.files import work_folder
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.client import Engine
from imgbuild.engine.types import AMD64, StoredImage
from imgbuild.inputs.upstream_files import PLAN_SECONDS
from imgbuild.suites.container import CONTAINER_LABEL, make_label
from imgbuild.suites.runner import folder_name

#: The path of dpkg's list of installed packages, and its maximum size in bytes.
STATUS, STATUS_LIMIT = "/var/lib/dpkg/status", 64 << 20
#: apt plans to install every installed package except held ones. It then lists newer versions, and
#: packages that these need in addition. apt of 2016 does not support patterns like ?upgradable.
_DOCKERFILE = rf"""
FROM archive AS updates
USER root
SHELL ["/bin/sh", "-eu", "-c"]
RUN --mount=type=secret,id=ca --mount=type=secret,id=netrc --mount=type=secret,id=upstreams \
    --mount=source=install,target=/run/apt-install --mount=from=known,target=/run/known \
    mkdir /found; cd /found; export APT_CONFIG=/found/apt.conf; cp /run/known/status .; \
    echo 'Dir::State::status "/found/status";' > apt.conf; \
    dpkg-query --admindir=/found -W \
        -f '${{db:Status-Abbrev}} ${{Package}} ${{Version}}\n' > packages; \
    timeout {PLAN_SECONDS} \
    sh /run/apt-install --plan /found $(sed -n 's/^ii *\([^ ]*\) .*/\1/p' packages)
FROM scratch AS updates-found
COPY --from=updates /found/packages /found/uris /
"""
#: An entry of dpkg's status file for a package of which only the version is known.
_ENTRY = """\
Package: {}
Status: install ok installed
Architecture: amd64
Version: {}
Maintainer: x
Description: x

"""
#: Names and versions of packages. Source: Debian's policy, sections 5.6.7 and 5.6.12.
_NAME, _VERSION = re.compile(r"[a-z0-9][a-z0-9+.-]{0,199}"), re.compile(r"[0-9A-Za-z.+:~-]{1,200}")
_URI = re.compile(r"'([^']+)' ([^_]+)_([^_]+)_[^_]+\.deb ")


@dataclass(frozen=True)
class Update:
    """A newer version of a system package; ``installed`` is empty for an additional package.

    ``security`` is true if it comes from the archive of security updates.
    """

    package: str
    installed: str
    available: str
    security: bool


def read_status(name: str, stored: StoredImage, engine: Engine) -> bytes:
    """Copy the list of installed packages from an image, without running its programs.

    CheckFailedError: the file is missing or too large.
    """
    labels = {CONTAINER_LABEL: make_label(name)}
    status = engine.copy_out(stored.id, STATUS, labels=labels, limit=STATUS_LIMIT)
    if status is None:
        raise CheckFailedError(
            f"{name} ({stored.id}) has no file {STATUS}: it is not an image of Debian or Ubuntu."
        )
    return status


def make_status(versions: Mapping[str, str]) -> bytes:
    """Write a list of installed packages from their versions."""
    packages = sorted(versions.items())
    return "".join(_ENTRY.format(name, version) for name, version in packages).encode()


def find_updates(
    name: str, system: str, status: bytes, context: BuildContext, platform: str = AMD64
) -> tuple[Update, ...]:
    """Return the packages that are newer in a system's archive than in the image, by name.

    ``status`` is the image's list of installed packages. ``system`` is a system in the matrix, for
    example debian-12, and ``platform`` that of the image.

    InputError: the matrix does not have the system for this platform.
    CheckFailedError: the archive cannot be reached, or the list is damaged.
    """
    with work_folder("updates") as folder:
        dockerfile = folder / "Dockerfile"
        dockerfile.write_text(_DOCKERFILE, encoding="utf-8")
        (folder / "known").mkdir()
        (folder / "known" / "status").write_bytes(status)
        archive = provide_archive_base(name, system, context, platform)
        target = BuildTarget(
            folder_name(name),
            context.project.files / "apt",
            dockerfile,
            contexts={"archive": archive.context(), "known": str(folder / "known")},
            target="updates-found",
            uncached=("updates",),
            secrets=context.inputs.secrets,
            platform=platform,
        )
        export_stage(target, folder / "out", context)
        updates = read_updates(folder / "out")
        return tuple(sorted(updates, key=lambda update: update.package))


def read_updates(folder: Path) -> Iterator[Update]:
    """Yield the updates from the exported files: the image's packages, and apt's downloads."""
    installed: dict[str, str] = {}
    for line in (folder / "packages").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "ii":
            _, name, version = words
            if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
                raise CheckFailedError(
                    f"{name!r} {version!r} is not a valid name and version of a Debian package."
                )
            installed[name] = version
    for line in (folder / "uris").read_text(encoding="utf-8").splitlines():
        match = _URI.match(line)
        if not match:
            raise CheckFailedError(f"The output of apt has an unknown format: {line!r}.")
        url, package, version = match.groups()
        security = "security" in url.partition("/pool/")[0]
        update = Update(package, installed.get(package, ""), unquote(version), security)
        if update.installed != update.available:
            yield update
