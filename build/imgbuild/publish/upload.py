"""Push an image's content through the engine, under a temporary tag.

Engines push images by their tags. A tag of a killed push is removed by the next push of the image.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import write_text
from imgbuild.http import RetryPolicy

#: The folder of the notes of temporary tags, in the state folder.
NOTES = "pushed-names"
#: Signs, in the words of engines and registries, that another try would end the same way.
_FINAL = (
    "unauthorized",
    "authentication required",
    "no basic auth credentials",
    "denied",
    "forbidden",
    "insufficient_scope",
    "name invalid",
    "invalid reference",
    "x509",
    "certificate",
    "http response to https client",
)
_LOGIN = ("unauthorized", "authentication required", "no basic auth", "denied", "forbidden")


def notes_of(engine: Engine, notes: Path) -> Path:
    """Return the folder of the notes, one an image, of temporary tags on an engine."""
    return notes / hashlib.sha256((engine.host or "").encode()).hexdigest()[:12]


def remove_left_tag(engine: Engine, notes: Path, name: str) -> None:
    """Remove the tag that a killed push left on an image; the caller holds the image's lock.

    A tag that belongs to another image by now stays.
    """
    note = notes_of(engine, notes) / f"{name}.json"
    try:
        left = json.loads(note.read_text(encoding="utf-8"))
        reference, image_id = str(left["reference"]), str(left["image_id"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        note.unlink(missing_ok=True)
        return
    found = engine.inspect(reference)
    if found and found.id == image_id:
        engine.untag(reference)
    note.unlink(missing_ok=True)


@dataclass(frozen=True)
class Uploader:
    """Pushes images by one engine; tries again while that may help.

    ``notes`` is the folder in which temporary tags are noted. ``pause`` waits so many seconds;
    ``progress`` gets an image's name and how far it is: both may raise to end a push. ``log`` gets
    a line for each failed try.
    """

    engine: Engine
    notes: Path
    policy: RetryPolicy
    pause: Callable[[float], None]
    progress: Callable[[str, str], None]
    log: Callable[[str], None]

    def push(self, name: str, image_id: str, reference: str) -> None:
        """Push an image under ``reference``.

        Raises:
            CheckFailedError: the registry refuses.
            MachineError: the registry or the engine cannot be reached, or keeps failing.

        """
        with self._temporary_tag(name, image_id, reference):
            for tries in count(1):
                error = self._try(name, reference)
                if error is None:
                    return
                seconds = self.policy.wait(tries, None)
                if seconds == inf:
                    raise MachineError(_gave_up(reference, error, tries))
                counted = f"{tries} of {self.policy.attempts} tries"
                self.log(f"{name}: {error} Again in {seconds:.1f} s ({counted}).")
                self.pause(seconds)

    @contextmanager
    def _temporary_tag(self, name: str, image_id: str, reference: str) -> Iterator[None]:
        """Tag the image for the block; a tag that it had before stays."""
        found = self.engine.inspect(image_id)
        if found is None:
            raise MachineError(f"{name} ({image_id}) was removed from the engine in the meantime.")
        if _familiar(reference) in map(_familiar, found.tags):
            yield
            return
        note = notes_of(self.engine, self.notes) / f"{name}.json"
        write_text(note, json.dumps({"reference": reference, "image_id": image_id}) + "\n")
        try:
            self.engine.tag(image_id, reference)
            yield
        finally:
            self.engine.untag(reference)
            note.unlink(missing_ok=True)

    def _try(self, name: str, reference: str) -> str | None:
        """Return what went wrong, if another try may end otherwise."""
        sent = SentBytes()

        def on_message(message: Mapping[str, object]) -> None:
            sent.add(message)
            self.progress(name, sent.text)

        try:
            self.engine.push(reference, on_message)
        except CheckFailedError as error:
            text = str(error)
            if any(sign in text.lower() for sign in _FINAL):
                raise CheckFailedError(_refused(text, reference)) from None
            return text
        return None


@dataclass
class SentBytes:
    """How far a push is, from the engine's messages (Docker Engine API, ImagePush).

    The engine reports the size of a layer when it begins with it.
    """

    _layers: dict[str, int] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    def add(self, message: Mapping[str, object]) -> None:
        """Take in one message of the engine's stream."""
        layer, status = message.get("id"), message.get("status")
        if not isinstance(layer, str) or not isinstance(status, str):
            return
        self._layers.setdefault(layer, 0)
        if status in {"Pushed", "Layer already exists"} or status.startswith("Mounted from"):
            self._done.add(layer)
        detail = message.get("progressDetail")
        if isinstance(detail, Mapping) and isinstance(detail.get("current"), int):
            self._layers[layer] = detail["current"]

    @property
    def text(self) -> str:
        """``3 of 8 layers up, 120 MB sent``, in bytes before packing."""
        sent = sum(self._layers.values())
        layers = f"{len(self._done)} of {len(self._layers)} layers up"
        return f"{layers}, {sent / 1e6:.0f} MB sent" if sent else layers


def _refused(text: str, reference: str) -> str:
    if not any(sign in text.lower() for sign in _LOGIN):
        return text
    host = reference.partition("/")[0]
    return (
        f"{text} The login for {host} is missing, wrong or expired, or may not push there: "
        f"docker login {host}."
    )


def _gave_up(reference: str, error: str, tries: int) -> str:
    counted = "1 try" if tries == 1 else f"{tries} tries"
    return (
        f"It could not be pushed to {reference.partition('/')[0]} ({counted}). {error} What is "
        "there already stays; check that the registry is well (its log, its disk), then run this "
        "again."
    )


def _familiar(reference: str) -> str:
    """Return a name as engines list it: they leave out Docker Hub's address.

    Source: the "familiar name" of the distribution project's reference package.
    """
    name = reference.removeprefix("index.").removeprefix("docker.io/")
    return name.removeprefix("library/") if name != reference else name
