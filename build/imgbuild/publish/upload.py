"""Push an image's content through the engine, under a temporary tag.

Engines push images by their tags. A tag of a killed push is removed by the next push of the image.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.files import parse_json, sha256, write_text
from imgbuild.engine.client import Engine
from imgbuild.net.http import TransientError
from imgbuild.net.repository_client import RegistryClient

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


def note_path(state: Path, engine: Engine, name: str) -> Path:
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
    tagged = engine.inspect(reference) if reference else None
    if tagged and tagged.id == image_id:
        engine.untag(reference)
    note.unlink(missing_ok=True)


def upload(  # noqa: PLR0913 - the image, from where and to where
    image_id: str,
    tag: str,
    *,
    engine: Engine,
    registry: RegistryClient,
    note: Path,
    progress: Callable[[str], None],
) -> str:
    """Push an image under a tag; return the digest of what the engine sent.

    It is tried again while that may help. ``note`` is the file in which the temporary tag is noted.
    ``progress`` gets how far it is, and may raise to end the push.

    MachineError: the engine does not say the digest. Other errors are those of `RegistryClient`.
    """
    reference = f"{registry.name}:{tag}"
    with _temporary_tag(engine, image_id, reference, note):
        return registry.retry(f"pushing {tag}", lambda: _push_once(engine, reference, progress))


@contextmanager
def _temporary_tag(engine: Engine, image_id: str, reference: str, note: Path) -> Iterator[None]:
    """Tag the image for the block; a tag that it had before stays."""
    tagged = engine.inspect(reference)
    if tagged and tagged.id == image_id:
        yield
        return
    write_text(note, json.dumps({"reference": reference, "image_id": image_id}) + "\n")
    try:
        engine.tag(image_id, reference)
        yield
    finally:
        engine.untag(reference)
        note.unlink(missing_ok=True)


def _push_once(engine: Engine, reference: str, progress: Callable[[str], None]) -> str:
    """Push; return the digest of the manifest that the engine made and sent.

    It is the engine's own word, not the registry's. An error that may pass is a `TransientError`.
    Source of the messages: Docker Engine API, ImagePush. The engine reports the size of a layer
    when it begins with it.
    """
    sent: dict[str, int] = {}
    done: set[str] = set()
    digests: list[str] = []

    def on_message(message: Mapping[str, object]) -> None:
        layer, status = str(message.get("id", "")), str(message.get("status", ""))
        if match := _PUSHED.fullmatch(status):
            digests.append(match[1])
        if layer:
            detail = message.get("progressDetail")
            current = detail.get("current") if isinstance(detail, Mapping) else None
            sent[layer] = current or sent.get(layer, 0)
            if status.startswith(("Pushed", "Layer already exists", "Mounted")):
                done.add(layer)
        megabytes = sum(sent.values()) / 1e6  # before packing
        layers = f"{len(done)} of {len(sent)} layers up"
        progress(f"{layers}, {megabytes:.0f} MB sent" if megabytes else layers)

    try:
        engine.push(reference, on_message)
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
    if not digests:
        raise MachineError(
            f"The engine pushed {reference} and did not say its digest, so nothing was signed. "
            "Use Docker 23 or newer."
        )
    return digests[-1]
