"""The name that an image has on the engine while it is pushed, and only then."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.errors import MachineError
from imgbuild.files import write_text


def names_folder(state: Path, host: str | None) -> Path:
    """Return the folder of the names that images have on the engine at ``host`` for a push."""
    engine = hashlib.sha256((host or "").encode()).hexdigest()[:12]
    return state / "pushed-names" / engine


@contextmanager
def lent_name(
    engine: Engine, name: str, image_id: str, reference: str, folder: Path
) -> Iterator[None]:
    """Give an image ``reference`` as a name for the block; one that it had before stays its own.

    What is lent is written into ``folder`` first, under the image's ``name`` in the matrix: after
    a kill, `take_back` finds it there.

    Raises:
        MachineError: the image is gone.

    """
    found = engine.inspect(image_id)
    if found is None:
        raise gone(name, image_id)
    if familiar(reference) in map(familiar, found.tags):
        yield
        return
    note = _note(folder, name)
    write_text(note, json.dumps({"reference": reference, "image_id": image_id}) + "\n")
    try:
        engine.tag(image_id, reference)
        yield
    finally:
        engine.untag(reference)
        note.unlink(missing_ok=True)


def take_back(engine: Engine, name: str, folder: Path) -> None:
    """Take away the name that a killed push left on an image; the caller holds the image's lock.

    A name that stands for another image by now is somebody else's, and stays.
    """
    note = _note(folder, name)
    try:
        lent = json.loads(note.read_text(encoding="utf-8"))
        reference, image_id = str(lent["reference"]), str(lent["image_id"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        note.unlink(missing_ok=True)
        return
    found = engine.inspect(reference)
    if found and found.id == image_id:
        engine.untag(reference)
    note.unlink(missing_ok=True)


def gone(name: str, image_id: str) -> MachineError:
    """Return the error of an image that is no longer on the engine."""
    return MachineError(f"{name} ({image_id}) was removed from the engine in the meantime.")


def familiar(reference: str) -> str:
    """Return a name as engines list it: they leave out Docker Hub's address.

    Source: the "familiar name" of the distribution project's reference package.
    """
    name = reference.removeprefix("index.").removeprefix("docker.io/")
    return name.removeprefix("library/") if name != reference else name


def _note(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
