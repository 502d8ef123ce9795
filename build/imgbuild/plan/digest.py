"""The input digest: sha256 over everything that goes into an image. Pure but for reading files.

Each input is a part of its own, as precise as can be told without building: a stage of the
Dockerfile, one file or folder that it mounts, one lock, one download (docs/development.md).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.matrix.images import Image
from imgbuild.plan.reading import Reading
from imgbuild.project import Project

#: Enough of a sha256 to tell two inputs apart in a label.
SHORT = 12
#: The parts of a stage, of a download and of a lock's packages begin or end with these words.
STAGE, DOWNLOAD, PACKAGES = "stage ", "download ", " packages"
NOT_MADE = "not made yet"
_DIGEST = re.compile(rf"(?:sha256:)?([0-9a-f]{{{SHORT}}})[0-9a-f]{{{64 - SHORT}}}")


@dataclass(frozen=True)
class InputDigest:
    """The digest of all inputs, and what each of them is, to say what changed.

    A part's value is a version, a date, a lock's packages, or the short digest of a content.
    """

    total: str
    parts: Mapping[str, str]


def input_digest(
    image: Image, inputs: BuildInputs, project: Project, reading: Reading | None = None
) -> InputDigest:
    """Return the digest of everything that decides what is in ``image``.

    ``reading`` reads each file once for many images.

    Raises:
        InputError: the committed Dockerfile or a lock is missing or not the current one.

    """
    look = reading or Reading(project)
    look.require_locks(image)
    whole = {"epoch": image.matrix.epoch, **_machine(image, inputs)}
    packages = {}
    for name, file in _locks(image).items():
        whole[name] = look.digest(f"locks/{file}")
        packages[name + PACKAGES] = ",".join(f"{n}=={v}" for n, v in look.versions(file))
    dockerfile = look.dockerfile(image)
    whole |= {f"{STAGE}{name}": stage.digest for name, stage in dockerfile.stages.items()}
    known = {f"locks/{file}" for file in _locks(image).values()}
    whole |= {path: look.digest(path) for path in dockerfile.paths if path not in known}
    total = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    return InputDigest(f"sha256:{total}", {**{n: _short(v) for n, v in whole.items()}, **packages})


def _locks(image: Image) -> dict[str, str]:
    """Return the locks' file names by what the plan calls them."""
    found = {"lock": image.lock_name, "build lock": image.build_lock_name}
    return {**found, "MPI lock": image.mpi_lock_name} if image.mpi_lock_name else found


def _machine(image: Image, inputs: BuildInputs) -> dict[str, str]:
    """Return the inputs that are not in the checkout."""
    found = {
        "base": inputs.bases[image.os_name].digest or NOT_MADE,
        "CPython": inputs.interpreters[image.version_of("python")].digest,
        # With pinned hashes another uv should install the same; nobody proved that it does.
        "uv": inputs.uv_version,
        **dict(_downloads(image, inputs)),
    }
    if image.cuda and inputs.keyrings:
        found["keyrings"] = inputs.keyrings.name
    if inputs.standin:
        found["stand-in"] = inputs.standin
    return found


def _downloads(image: Image, inputs: BuildInputs) -> Iterator[tuple[str, str]]:
    for context, files in inputs.downloads[image.name].contexts.items():
        for file in files:
            # The context's name goes into the total: a file in another one is another input.
            yield f"{DOWNLOAD}{context}/{file.file_name}", file.sha256


def _short(value: str) -> str:
    """Return enough of a digest to tell it from another; anything else as it is."""
    found = _DIGEST.fullmatch(value)
    return found[1] if found else value
