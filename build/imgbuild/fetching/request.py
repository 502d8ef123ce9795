"""What a listing was asked for: digests of all that decides which files an image needs. Pure."""

import hashlib
import json
from collections.abc import Mapping

from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage, read_dockerfile
from imgbuild.errors import InputError
from imgbuild.fetching.stages import arguments, install, install_stages
from imgbuild.inputs.build_inputs import image_downloads
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import PrefixInterpreter, Settings

#: The part that an offline build does not compare: it takes whatever base was fetched.
BASE = "base"
_SHORT = 12


def fetch_request(image: Image, project: Project, settings: Settings) -> Mapping[str, str]:
    """Return a short digest of each kind of input.

    Raises:
        InputError: a lock is missing, or a conda package has no recorded sha256.

    """
    stages = needed_stages(image, project, settings)
    parts = {
        "downloads": image_downloads(image, project.locks, settings).digest,
        "lock": _text(project, image.lock_name),
        "build lock": _text(project, image.build_lock_name),
        "Horovod": image.horovod.sha256,
        "packages": json.dumps([[stage.parent, arguments(stage)] for stage in stages]),
        BASE: settings.base_for(image.os_name, image.os.image).model_dump_json(),
    }
    if image.mpi_lock_name:
        parts["MPI lock"] = _text(project, image.mpi_lock_name)
    return {
        name: hashlib.sha256(value.encode()).hexdigest()[:_SHORT] for name, value in parts.items()
    }


def needed_stages(image: Image, project: Project, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages that install packages; a local prefix has its own in place of CPython's."""
    local = isinstance(settings.interpreter_for(image.version_of("python")), PrefixInterpreter)
    replaced = {"cpython"} if local else set()
    stages = install_stages(render_dockerfile(image, project.templates), replaced)
    return (*stages, *_prefix_stages(project)) if local else stages


def _prefix_stages(project: Project) -> tuple[Stage, ...]:
    dockerfile = read_dockerfile(project.prefix_dockerfile.read_text(encoding="utf-8"))
    return tuple(stage for stage in dockerfile.stages.values() if install(stage))


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the kinds of input that are others than ``before``."""
    return [name for name, value in now.items() if before.get(name) != value]


def _text(project: Project, name: str) -> str:
    path = project.locks / name
    if not path.exists():
        raise InputError(f"images/locks/{name} is missing. Run `imgbuild lock`.")
    return path.read_text(encoding="utf-8")
