"""Write the SBOM of an image in CycloneDX 1.6; the same image always has the same bytes.

The running image lists its packages. Sources and hashes come from the checkout, but only for inputs
whose digest matches the image's labels. The document consists of plain dictionaries, because a
library would add four packages for little benefit.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name
from pydantic import Field

from imgbuild.build.context import image_locks
from imgbuild.core.errors import CheckFailedError
from imgbuild.core.files import json_sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.user_folders import state_dir
from imgbuild.dockerfile.labels import BASE, BASE_DIGEST, EXTENDS, INPUT_PARTS, NAME, NAMESPACE, OCI
from imgbuild.dockerfile.render import constraints_path
from imgbuild.engine.client import Engine
from imgbuild.engine.types import AMD64, StoredImage
from imgbuild.inputs.build_inputs import FILES, list_downloads
from imgbuild.locks.constraints import package_bounds
from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image, all_images, minor_of, with_other_architectures
from imgbuild.matrix.model import Matrix
from imgbuild.plan.changes import read_parts
from imgbuild.plan.digest import DOWNLOAD, SHORT, STAGE, InputReader
from imgbuild.suites.container import (
    NOTHING,
    ImageContents,
    ask_image,
    read_contents,
    remove_leftovers,
)
from imgbuild.suites.runner import folder_name

SBOM_MEDIA_TYPE = "application/vnd.cyclonedx+json"
PROGRAM = Path(__file__).with_name("sbom_program.py")
_COMPILED = "compiled from its source"
#: Name prefixes of NVIDIA's libraries, in NVIDIA's archive and in the Python package index.
_NVIDIA = re.compile("(?:lib|nvidia-)(cudnn|nccl)|(?:nvidia-)?(cuda)-(?:cudart|runtime)-")

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}$")]
_Version = Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]
_Text = Annotated[str, Field(max_length=500)]
_Packages = Annotated[tuple[tuple[_Name, _Version, _Text, _Text], ...], Field(max_length=20_000)]
_System = tuple[_Name, _Version, _Name, _Name, _Version, _Text]
_Component = dict[str, Any]


@dataclass(frozen=True)
class Installed:
    """The output of :mod:`imgbuild.publish.sbom_program`; an image can forge it."""

    system: Annotated[tuple[_System, ...], Field(max_length=20_000)] | None
    python: _Packages
    conda: _Packages


#: The origin of a component: a text, and the external reference of its source, if known.
Origin = tuple[str, tuple[Mapping[str, Any], ...]]
#: Origins by name and version, or by the file name of a download.
Origins = Mapping[str, Origin]


def make_sbom(
    name: str, stored: StoredImage, engine: Engine, project: Project, matrix: Matrix
) -> str:
    """Return the SBOM of an image in the engine, as JSON; the lock of ``name`` must be held.

    CheckFailedError: the contents of the image cannot be read.
    InputError: the checkout is damaged.
    MachineError: the engine cannot start the container, or there is no docker client.
    """
    contents = read_contents(name, stored.id, engine)
    installed = ask_image(PROGRAM, Installed, name, stored.id, engine)
    if installed.system is None:
        raise CheckFailedError(
            f"{name} ({stored.id}) has no dpkg-query to list its system packages. imgbuild creates "
            "SBOMs only for images of Debian and Ubuntu; use another tool, for example syft."
        )
    family_name = stored.labels.get(NAME)
    family = with_other_architectures(all_images(matrix))
    image = next((image for image in family if image.name == family_name), None)
    if image is None:
        return format_sbom(_sbom_document(stored, contents, installed, {}))
    origins = find_origins(stored.labels, image, project)
    document = _sbom_document(stored, contents, installed, origins)
    bounds = _confirmed_bounds(stored.labels, image, project)
    _add_bounds(document["components"], bounds)
    return format_sbom(document)


def _add_bounds(components: Iterable[_Component], bounds: Mapping[str, str]) -> None:
    """Add the versions that Python packages may have in the image to their components."""
    for component in components:
        if not component["purl"].startswith("pkg:pypi/"):
            continue
        package = canonicalize_name(component["name"])
        if package in bounds:
            versions = bounds[package] or "any"
            component["properties"] += _properties([(f"{NAMESPACE}:versions", versions)])


def _confirmed_bounds(labels: Mapping[str, str], image: Image, project: Project) -> dict[str, str]:
    """Return the versions that packages may have, if the image's labels match the checkout."""
    path = constraints_path(image, Path("dockerfiles")).as_posix()
    said = (read_parts(labels) or {}).get(path)
    if said is None or said != InputReader(project).digest(path)[:SHORT]:
        return {}
    return package_bounds(image, project.locks)


def make_locked_sbom(
    name: str, stored: StoredImage, engine: Engine, project: Project, matrix: Matrix
) -> str:
    """Lock the image and return `make_sbom`.

    MachineError: another imgbuild works on the image.
    """
    with image_locks([folder_name(name)], engine.host, state_dir() / "locks"):
        remove_leftovers([name], engine)
        return make_sbom(name, stored, engine, project, matrix)


def format_sbom(document: Mapping[str, Any]) -> str:
    """Return the text of an SBOM; it does not depend on the order of keys in the document."""
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def system_packages(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the distribution's packages in an SBOM that imgbuild wrote."""
    versions = {}
    for component in document.get("components", ()):
        purl = component.get("purl", "")
        if re.match("pkg:deb/(debian|ubuntu)/", purl) and "arch=source" not in purl:
            versions[component["name"]] = component["version"]
    return versions


def read_system(document: Mapping[str, Any]) -> str:
    """Return the system in an SBOM, for example ``debian-12``; empty without system packages."""
    for component in document.get("components", ()):
        match = re.match(r"pkg:deb/.*[?&]distro=([^&]+)", str(component.get("purl")))
        if match:
            return match[1]
    return ""


def find_origins(labels: Mapping[str, str], image: Image, project: Project) -> Origins:
    """Return the origins of components, from inputs of the checkout that match the labels."""
    said = read_parts(labels) or {}
    reader = InputReader(project)
    origins: dict[str, Origin] = {}
    for title in ("lock", "MPI lock"):
        name = image.titled_locks.get(title)
        if name and said.get(title) == reader.digest(f"locks/{name}")[:SHORT]:
            origins |= _locked_origins(name, project)
    if image.mpi.origin == "index":
        runtime = image.mpi.runtime.replace("==", "-")
        if runtime in origins:
            program = f"{image.mpi.flavour}-{minor_of(image.mpi.version)}"
            origins[program] = origins[runtime]
    stage = reader.dockerfile(image).stages.get("horovod-source")
    source = image.horovod_source
    if source and stage and said.get(f"{STAGE}{stage.name}") == stage.digest[:SHORT]:
        version, sha256 = source
        purl = package_url(("pypi", "horovod"), version)
        installed = image.version_of("horovod")
        origins[f"horovod-{installed}"] = _origin(_COMPILED, purl, sha256)
    downloads = list_downloads(image, project.locks, Settings())
    for context, files in downloads.contexts.items():
        how = _COMPILED if context == FILES else "conda"
        for file in files:
            if said.get(f"{DOWNLOAD}{context}/{file.name}") == file.sha256[:SHORT]:
                package = file.name.partition(".tar")[0]
                origins[package] = _origin(how, file.url, file.sha256)
    return origins


def _locked_origins(name: str, project: Project) -> dict[str, Origin]:
    """Return the origins of the packages in a lock."""
    lock = read_lock(project.locks / name)
    origins: dict[str, Origin] = {}
    for package, version in lock.versions.items():
        purl = package_url(("pypi", package), version)  # the same for every index and mirror
        hashes = lock.hashes[package]
        origins[f"{package}-{version}"] = _origin(f"images/locks/{name}", purl, *hashes)
    return origins


def _origin(how: str, url: str, *sha256: str) -> Origin:
    """Return an origin; with several hashes, the package is one of these files."""
    kind = "source-distribution" if how == _COMPILED else "distribution"
    hashes = [{"alg": "SHA-256", "content": digest} for digest in sorted(sha256)]
    return how, ({"type": kind, "url": url, "hashes": hashes},)


def _sbom_document(
    stored: StoredImage, contents: ImageContents, installed: Installed, origins: Origins
) -> dict[str, Any]:
    """Return the document, with the image's own time and sorted components.

    Its serial number is derived from layers and labels, which are the same in every engine.
    """
    labels = dict(sorted(stored.labels.items()))
    labels.pop(INPUT_PARTS, None)
    facts = [(key, value) for key, value in labels.items() if key.startswith((NAMESPACE, OCI))]
    facts += [(f"{NAMESPACE}:layer", layer) for layer in stored.layers]
    if stored.platform != AMD64:  # so that SBOMs of earlier releases stay the same
        facts.append((f"{NAMESPACE}:platform", stored.platform))
    image = {"type": "container", "name": labels.get(f"{OCI}.title") or "image", "bom-ref": "image"}
    listed = [*_base(labels), *_programs(contents, origins)]
    for package in installed.system or ():
        listed += _system_package(package, contents.os)
    listed += _python(installed.python, origins)
    for name, version, licence, build in installed.conda:
        origin = origins.get(f"{name}-{version}-{build}", ("conda", ()))
        listed.append(_component(("conda", name), version, origin, licence=licence, build=build))
    components = {component["purl"]: component for component in listed}
    identity = json_sha256([stored.layers, [*labels.items()]])
    created = datetime.fromtimestamp(stored.created, UTC)
    metadata = {
        "timestamp": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        "tools": {"components": [{"type": "application", "name": NAMESPACE}]},
        "component": {**image, "properties": _properties(facts)},
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid5(NAMESPACE_URL, identity).urn,
        "version": 1,
        "metadata": metadata,
        "components": [components[purl] for purl in sorted(components)],
    }


def _base(labels: Mapping[str, str]) -> Iterator[_Component]:
    """Yield the base image that the labels name, with its digest or id."""
    name, digest = labels.get(f"{OCI}.base.name"), labels.get(BASE_DIGEST)
    if name and digest:
        how = labels.get(EXTENDS) or labels.get(BASE, "registry")
        kind = "oci" if how == "registry" else "generic"
        component = _component((kind, _last_part(name)), digest, (how, ()), part="base")
        component["type"] = "container"
        component["name"] = name
        yield component


def _last_part(name: str) -> str:
    """Return an image's name without registry, path, tag and digest."""
    return re.split("[:@]", name.rpartition("/")[2], maxsplit=1)[0]


def _programs(contents: ImageContents, origins: Origins) -> Iterator[_Component]:
    """Yield Python and the MPI with their own versions, because they may not be packages."""
    flavour, version = contents.mpi
    programs = [("python", "Python", contents.python)]
    if flavour != NOTHING:
        programs.append(("mpi", flavour, version))
    for part, name, release in programs:
        origin = origins.get(f"{name}-{release}", ("the program itself", ()))
        component = _component(("generic", name.lower()), release, origin, part=part)
        component["type"] = "application"
        yield component


def _system_package(line: _System, system: tuple[str, str]) -> Iterator[_Component]:
    """Yield a system package and its source package; stand-ins have no source package."""
    name, version, architecture, source, source_version, maintainer = line
    vendor = system[0]
    distro = "-".join(system)
    origin: Origin = ("dpkg", ())
    if maintainer == NAMESPACE:  # images/files/mpi/archive/stand-in
        vendor = NAMESPACE
        origin = ("stand-in: empty, in place of the distribution's", ())
    else:
        path = ("deb", vendor, source)
        yield _component(path, source_version, origin, arch="source", distro=distro)
    qualifiers = {"arch": architecture, "distro": distro}
    upstream = source if source_version == version else f"{source}@{source_version}"
    if upstream != name:
        qualifiers["upstream"] = upstream
    component = _component(("deb", vendor, name), version, origin, **qualifiers)
    component["publisher"] = maintainer
    yield component


def _python(
    packages: Iterable[tuple[str, str, str, str]], origins: Origins
) -> Iterator[_Component]:
    for name, version, licence, folder in packages:
        package = str(canonicalize_name(name))
        path = ("pypi", package)
        origin = origins.get(f"{package}-{version}", (folder, ()))
        if version.endswith(f"+{NAMESPACE}"):  # a package of `Image.provided`, not from an index
            path = ("generic", name)
            origin = ("stand-in: another package provides it", ())
        component = _component(path, version, origin, licence=licence)
        component["name"] = name
        yield component


def package_url(path: tuple[str, ...], version: str, **qualifiers: str) -> str:
    """Return a canonical purl; ``path`` is the type, an optional namespace, and the name."""
    place = "/".join(quote(name, safe="") for name in path)
    url = f"pkg:{place}@{quote(version, safe=':')}"
    if not qualifiers:
        return url
    pairs = []
    for key, value in sorted(qualifiers.items()):
        pairs.append(f"{key}={quote(value, safe=':')}")
    return f"{url}?{'&'.join(pairs)}"


def _component(
    path: tuple[str, ...],
    version: str,
    origin: Origin,
    *,
    part: str = "",
    licence: str = "",
    **qualifiers: str,
) -> _Component:
    name = path[-1]
    purl = package_url(path, version, **qualifiers)
    if nvidia := _NVIDIA.match(name):
        part = nvidia[nvidia.lastindex or 0]
    how, references = origin
    facts = [(f"{NAMESPACE}:origin", how), (f"{NAMESPACE}:part", part)]
    component: _Component = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "purl": purl,
        "version": version,
        "properties": _properties(facts),
    }
    if references:
        component["externalReferences"] = [*references]
    if licence:
        component["licenses"] = [_licence(licence)]
    return component


def _licence(text: str) -> dict[str, Any]:
    try:
        return {"expression": str(canonicalize_license_expression(text))}
    except InvalidLicenseExpression:
        return {"license": {"name": text}}


def _properties(facts: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in facts if value]
