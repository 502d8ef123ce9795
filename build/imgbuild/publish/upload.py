"""Push an image's content through the engine, under a temporary tag.

Engines push images by their tags. A tag of a killed push is removed by the next push of the image.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import parse_json, sha256, write_text
from imgbuild.http import TransientError
from imgbuild.registry.repository_client import RegistryClient

_LOGIN = ("unauthorized", "authentication required", "no basic auth", "denied", "forbidden")
#: Signs, in the words of engines and registries, that another try would end the same way.
_FINAL = (
    *_LOGIN,
    "insufficient_scope",
    "name invalid",
    "invalid reference",
    "x509",
    "certificate",
    "http response to https client",
)


#: The last message of a push, of each image store.
_PUSHED = re.compile(r"(?:\S+: )?digest: (sha256:[0-9a-f]{64}) size: [0-9]+")


def note_of(state: Path, engine: Engine, name: str) -> Path:
    """Return the file in the state folder that notes an image's temporary tag on an engine."""
    folder = sha256((engine.host or "").encode())[:12]
    return state / "pushed-names" / folder / f"{name}.json"


def remove_left_tag(engine: Engine, note: Path) -> None:
    """Remove the tag that a killed push left on an image; the caller holds the image's lock.

    A tag that belongs to another image by now stays, as does one that a damaged note names.
    """
    try:
        left = parse_json(note.read_text(encoding="utf-8"))
        reference, image_id = str(left["reference"]), str(left["image_id"])
    except (OSError, ValueError, KeyError, TypeError):
        reference = image_id = ""
    found = engine.inspect(reference) if reference else None
    if found and found.id == image_id:
        engine.untag(reference)
    note.unlink(missing_ok=True)


@dataclass(frozen=True)
class Uploader:
    """Pushes an image by one engine; tries again while that may help.

    ``note`` is the file in which the temporary tag is noted. ``progress`` gets how far it is, and
    may raise to end the push.
    """

    engine: Engine
    registry: RegistryClient
    note: Path
    progress: Callable[[str], None]

    def push(self, image_id: str, tag: str) -> str:
        """Push an image under a tag; return the digest of what the engine sent.

        MachineError: the engine does not say the digest. Other errors are those of
        `RegistryClient`.
        """
        reference = f"{self.registry.name}:{tag}"
        with self._temporary_tag(image_id, reference):
            return self.registry.retry(f"pushing {tag}", lambda: self._try(reference))

    @contextmanager
    def _temporary_tag(self, image_id: str, reference: str) -> Iterator[None]:
        """Tag the image for the block; a tag that it had before stays."""
        found = self.engine.inspect(reference)
        if found and found.id == image_id:
            yield
            return
        write_text(self.note, json.dumps({"reference": reference, "image_id": image_id}) + "\n")
        try:
            self.engine.tag(image_id, reference)
            yield
        finally:
            self.engine.untag(reference)
            self.note.unlink(missing_ok=True)

    def _try(self, reference: str) -> str:
        sent = SentBytes()

        def on_message(message: Mapping[str, object]) -> None:
            sent.add(message)
            self.progress(sent.text)

        try:
            self.engine.push(reference, on_message)
        except CheckFailedError as error:
            text = str(error)
            if not any(sign in text.lower() for sign in _FINAL):
                raise TransientError(text.rstrip(".")) from None
            if any(sign in text.lower() for sign in _LOGIN):
                host = reference.partition("/")[0]
                text += (
                    f" The login for {host} is missing, wrong or expired, or may not push there: "
                    f"docker login {host}."
                )
            raise CheckFailedError(text) from None
        if not sent.digest:
            raise MachineError(
                f"The engine pushed {reference} and did not say its digest, so nothing was signed. "
                "Use Docker 23 or newer."
            )
        return sent.digest


@dataclass
class SentBytes:
    """How far a push is, from the engine's messages (Docker Engine API, ImagePush).

    The engine reports the size of a layer when it begins with it. ``digest`` is that of the
    manifest that the engine made and sent: its own word, not the registry's.
    """

    digest: str = ""
    _layers: dict[str, int] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    def add(self, message: Mapping[str, object]) -> None:
        layer, detail = str(message.get("id", "")), message.get("progressDetail")
        if match := _PUSHED.fullmatch(str(message.get("status", ""))):
            self.digest = match[1]
        if not layer:
            return
        current = detail.get("current") if isinstance(detail, Mapping) else None
        self._layers[layer] = current or self._layers.get(layer, 0)
        if str(message.get("status")).startswith(("Pushed", "Layer already exists", "Mounted")):
            self._done.add(layer)

    @property
    def text(self) -> str:
        """``3 of 8 layers up, 120 MB sent``, in bytes before packing."""
        sent = sum(self._layers.values())
        layers = f"{len(self._done)} of {len(self._layers)} layers up"
        return f"{layers}, {sent / 1e6:.0f} MB sent" if sent else layers
