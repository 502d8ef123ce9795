"""The documents that are put beside a published image: its SBOM and its provenance."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import wheel_key
from imgbuild.engine.client import Engine
from imgbuild.trust.provenance import provenance
from imgbuild.trust.sbom import image_sbom

if TYPE_CHECKING:
    from imgbuild.publish.candidate import PushCandidate


def predicates(
    candidate: "PushCandidate", engine: Engine, context: BuildContext
) -> Mapping[str, bytes]:
    """Return what is attested of an image, by cosign's name of the type; its lock must be held."""
    stored = engine.need(candidate.image_id)
    sbom = image_sbom(candidate.name, stored, engine, context.project, candidate.image.matrix)
    wheel = wheel_key(candidate.image, context.project, context.inputs)
    made = provenance(candidate, context.project, context.settings, sbom, wheel)
    return {
        "cyclonedx": sbom.encode(),
        "slsaprovenance1": json.dumps(made, indent=1, sort_keys=True).encode(),
    }
