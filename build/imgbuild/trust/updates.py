"""Find what an image's distribution has newer: its archive is asked, in a build step on the image.

So the lists are those of the image's own sources or their mirrors, checked against the archive's
signature, and downloaded like those of any build: with the CA, the logins and the mirrors of the
settings, on whatever machine the engine is.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from imgbuild.build.bake_images import export_stage
from imgbuild.build.context import BuildContext
from imgbuild.engine.bake import BakeTarget
from imgbuild.errors import CheckFailedError
from imgbuild.files import work_folder
from imgbuild.inputs.upstream_files import PLAN_SECONDS

#: apt is asked to install every package that is there, but those that are held: it then names the
#: newer versions, and what they need in addition. apt of 2016 knows no pattern like ?upgradable.
_DOCKERFILE = rf"""
FROM image AS updates
USER root
SHELL ["/bin/sh", "-eu", "-c"]
RUN --mount=type=secret,id=ca --mount=type=secret,id=netrc --mount=type=secret,id=upstreams \
    --mount=source=install,target=/run/apt-install --mount=from=known,target=/run/known \
    mkdir /found; cd /found; export APT_CONFIG=/found/apt.conf; touch apt.conf; \
    if [ -e /run/known/status ]; then cp /run/known/status .; \
        echo 'Dir::State::status "/found/status";' > apt.conf; fi; \
    dpkg-query --admindir=$(if [ -e status ]; then pwd; else echo /var/lib/dpkg; fi) -W \
        -f '${{db:Status-Abbrev}} ${{Package}} ${{Version}}\n' > packages; \
    timeout {PLAN_SECONDS} \
    sh /run/apt-install --plan /found $(sed -n 's/^ii *\([^ ]*\) .*/\1/p' packages)
FROM scratch AS updates-found
COPY --from=updates /found/packages /found/uris /
"""
#: A package as dpkg's status file has it, of which only the version is known.
_STATUS = """\
Package: {}
Status: install ok installed
Architecture: amd64
Version: {}
Maintainer: x
Description: x

"""
_URI = re.compile(r"'([^']+)' ([^_]+)_([^_]+)_[^_]+\.deb ")


@dataclass(frozen=True)
class Update:
    """A package of the system in a newer version; ``installed`` is empty where it is an addition.

    ``security`` is whether it comes from the archive of security updates.
    """

    package: str
    installed: str
    available: str
    security: bool


def find_updates(
    name: str, reference: str, context: BuildContext, known: Mapping[str, str] | None = None
) -> tuple[Update, ...]:
    """Return what the archive has newer than the image at a reference of the engine, by package.

    With ``known``, versions by package, these are compared in the place of the image's own: the
    image only tells which archive.

    CheckFailedError: the archive cannot be reached, or the image has no apt.
    """
    with work_folder("updates") as folder:
        dockerfile = folder / "Dockerfile"
        dockerfile.write_text(_DOCKERFILE, encoding="utf-8")
        (folder / "known").mkdir()
        if known is not None:
            text = "".join(_STATUS.format(*one) for one in sorted(known.items()))
            (folder / "known" / "status").write_text(text, encoding="utf-8")
        target = BakeTarget(
            name,
            context.project.files / "apt",
            dockerfile,
            contexts={"image": f"docker-image://{reference}", "known": str(folder / "known")},
            target="updates-found",
            uncached=("updates",),
            secrets=context.inputs.secrets,
        )
        export_stage(target, folder / "out", context)
        return tuple(sorted(read_updates(folder / "out"), key=lambda one: one.package))


def read_updates(folder: Path) -> Iterator[Update]:
    """Yield what is in the exported files: the image's packages, and what apt would fetch."""
    lines = (folder / "packages").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines]
    installed = {one[1]: one[2] for one in words if len(one) == 3 and one[0] == "ii"}
    for line in (folder / "uris").read_text(encoding="utf-8").splitlines():
        match = _URI.match(line)
        if not match:
            raise CheckFailedError(f"apt names a package in a form that is not known: {line!r}.")
        url, package, version = match.groups()
        security = "security" in url.partition("/pool/")[0]
        update = Update(package, installed.get(package, ""), unquote(version), security)
        if update.installed != update.available:
            yield update
