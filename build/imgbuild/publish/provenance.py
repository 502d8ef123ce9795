"""Create an image's provenance (SLSA v1) and its in-toto statement.

The same image in the same release always has the same provenance. Inputs that are not files have
the short digest from the label ``imgbuild.inputs``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from imgbuild.core.files import file_sha256, sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.labels import ADDED, BASE_DIGEST, BASE_NAME, EXTENDS, NAMESPACE, OCI
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.engine.types import AMD64
from imgbuild.inputs.build_inputs import list_downloads
from imgbuild.net.repository import DamagedError, Manifest, json_object
from imgbuild.net.repository_client import LARGEST_DOCUMENT, RegistryClient
from imgbuild.net.signing import TYPES
from imgbuild.plan.changes import read_parts
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.extended_candidate import Candidate, ExtendedCandidate
from imgbuild.publish.record import Record
from imgbuild.publish.sbom import SBOM_MEDIA_TYPE
from imgbuild.suites.catalog import read_suites
from imgbuild.suites.results import SuiteResult, suite_byproducts

STATEMENT = "https://in-toto.io/Statement/v1"
BUILD_TYPE = f"urn:{NAMESPACE}:build:1"
#: The build type of an image from `imgbuild extend`.
EXTENSION_TYPE = f"urn:{NAMESPACE}:extend:1"
#: The builder id of an image that was built outside a workflow.
LOCAL = f"urn:{NAMESPACE}:local"
_LAYER = re.compile("sha256:[0-9a-f]{64}")


def read_configuration(registry: RegistryClient, manifest: Manifest) -> dict[str, Any]:
    """Return an image's configuration from the registry, without the history.

    CheckFailedError: it is missing, is not an image configuration, or contradicts the manifest.
    Source: OCI image specification 1.1, "Image Configuration".
    """
    digest = manifest.config_digest
    what = f"{registry.name}: the configuration of {manifest.digest}"
    document = json_object(registry.blob(digest, LARGEST_DOCUMENT), what)
    rootfs = document.get("rootfs")
    layers = rootfs.get("diff_ids") if isinstance(rootfs, Mapping) else None
    if not isinstance(layers, list) or not isinstance(document.get("config"), Mapping):
        raise DamagedError(f"{what} has no config or no rootfs.diff_ids.")
    if not all(isinstance(layer, str) and _LAYER.fullmatch(layer) for layer in layers):
        raise DamagedError(f"{what} has a layer that is not named by its sha256.")
    count = len(manifest.sizes()) - 1
    if len(layers) != count:
        raise DamagedError(f"{what} names {len(layers)} layers, but the manifest has {count}.")
    return {name: value for name, value in document.items() if name != "history"}


def make_statement(name: str, digest: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the in-toto statement of a provenance for the image of this name and digest."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": _digest(digest)}],
        "predicateType": TYPES["slsaprovenance1"],
        "predicate": predicate,
    }


def make_provenance(  # noqa: PLR0913 - the parts of a predicate
    candidate: PushCandidate,
    record: Record,
    configuration: Mapping[str, Any],
    project: Project,
    settings: Settings,
    *,
    sbom: str,
    wheel: str | None = None,
) -> dict[str, Any]:
    """Return the provenance predicate of an image.

    ``record`` has the release and the tags. ``configuration`` is the result of
    `read_configuration`. ``sbom`` lists the system packages. ``wheel`` is the key of the Horovod
    wheel, which an earlier build may have compiled. ``project`` and ``settings`` must be the ones
    used by `approve`, because they determine the input digest.
    """
    image, labels = candidate.image, candidate.stored.labels
    external = _external_parameters(candidate, record)
    external["row"] = image.row.model_dump(mode="json", exclude={"architectures", "ran_on"})
    external["revision"] = labels.get(f"{OCI}.revision", "")
    internal = _internal_parameters(candidate, configuration)
    internal["inputs"] = read_parts(labels) or {}
    internal["epoch"] = image.matrix.epoch
    if wheel:
        internal["horovodWheel"] = wheel
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": external,
        "internalParameters": internal,
        "resolvedDependencies": [*_materials(candidate, project, settings)],
    }
    builder = labels.get(f"{OCI}.source", LOCAL)
    byproducts = _byproducts(candidate.report, project, sbom)
    details = {"builder": {"id": builder}, "byproducts": byproducts}
    return {"buildDefinition": definition, "runDetails": details}


def make_extension_provenance(
    candidate: ExtendedCandidate,
    record: Record,
    configuration: Mapping[str, Any],
    project: Project,
    sbom: str,
) -> dict[str, Any]:
    """Return the provenance predicate of an image from `imgbuild extend`; see `make_provenance`.

    In the predicate, ``suitesNotRun`` are suites of the base.
    """
    labels = candidate.stored.labels
    digest = _digest(labels.get(BASE_DIGEST, ""))
    base = {"name": "base", "uri": labels.get(BASE_NAME, ""), "digest": digest}
    dependencies = [base]
    if candidate.lock:
        dependencies.append({"name": "lock", "digest": _digest(candidate.lock)})
    external = _external_parameters(candidate, record)
    external["extends"] = labels.get(EXTENDS, "")
    external["base"] = candidate.base
    external["lock"] = candidate.lock
    external["added"] = labels.get(ADDED, "").split()
    external["suitesNotRun"] = [*candidate.not_run]
    definition = {
        "buildType": EXTENSION_TYPE,
        "externalParameters": external,
        "internalParameters": _internal_parameters(candidate, configuration),
        "resolvedDependencies": dependencies,
    }
    byproducts = _byproducts(candidate.report, project, sbom)
    details = {"builder": {"id": LOCAL}, "byproducts": byproducts}
    return {"buildDefinition": definition, "runDetails": details}


def _external_parameters(candidate: Candidate, record: Record) -> dict[str, Any]:
    """Return the requested image, its release and its tags."""
    parameters = {
        "image": candidate.name,
        "variant": candidate.variant,
        "pins": candidate.pins,
        "release": record.release,
        "tags": {"immutable": record.tag, "moving": [*record.moving]},
    }
    if record.platform != AMD64:
        parameters["platform"] = record.platform
    return parameters


def _internal_parameters(candidate: Candidate, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs and the configuration of the image."""
    return {
        "inputDigest": candidate.input_digest,
        "substitutes": [*candidate.allowed],
        "configuration": configuration,
    }


def _byproducts(
    report: Mapping[str, SuiteResult], project: Project, sbom: str
) -> list[dict[str, Any]]:
    """Return the SBOM's digest, and each suite that ran with its code and result."""
    codes = {suite.name: suite.code for suite in read_suites(project.suites)}
    digest = _digest(sha256(sbom.encode()))
    listed = {"name": "sbom", "mediaType": SBOM_MEDIA_TYPE, "digest": digest}
    return [listed, *suite_byproducts(report, codes)]


def _materials(
    candidate: PushCandidate, project: Project, settings: Settings
) -> Iterator[dict[str, Any]]:
    """Yield the inputs that have a digest: revision, base, files and downloads."""
    image, labels = candidate.image, candidate.stored.labels
    revision, dirty, _ = labels.get(f"{OCI}.revision", "").partition("-dirty")
    if revision and not dirty:
        site = labels.get(f"{OCI}.source", "")
        place = {"uri": f"git+{site}"} if site else {"name": "revision"}
        yield {**place, "digest": {"gitCommit": revision}}
    base = labels.get(f"{OCI}.base.name", image.os_name)
    yield {"name": "base", "uri": base, "digest": _digest(labels[BASE_DIGEST])}
    files = [dockerfile_path(image, project.dockerfiles)]
    files += [project.locks / name for name in image.lock_names]
    for file in files:
        name = str(file.relative_to(project.root))
        yield {"name": name, "digest": _digest(file_sha256(file))}
    for download in list_downloads(image, project.locks, settings).all:
        yield {"name": download.name, "uri": download.url, "digest": _digest(download.sha256)}
    if source := image.horovod_source:
        version, digest = source
        uri = f"pkg:pypi/horovod@{version}"
        yield {"name": "Horovod", "uri": uri, "digest": _digest(digest)}


def _digest(value: str) -> dict[str, str]:
    return {"sha256": value.removeprefix("sha256:")}
