"""Push an image's content through the engine, under a temporary tag.

Engines can only push images by tag. If a push is killed, the next push of the image removes its
tag.
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
#: Words in errors of engines and registries that mean that a retry would fail again.
_FINAL = (
    *_LOGIN,
    "insufficient_scope",
    "name invalid",
    "invalid reference",
    "x509",
    "certificate",
    "http response to https client",
)


#: The last message of a push, with either image store.
_PUSHED = re.compile(r"(?:\S+: )?digest: (sha256:[0-9a-f]{64}) size: [0-9]+")


def note_path(state: Path, engine: Engine, name: str) -> Path:
    """Return the file in the state folder that stores an image's temporary tag on an engine."""
    folder = sha256((engine.host or "").encode())[:12]
    return state / "pushed-names" / folder / f"{name}.json"


def remove_left_tag(engine: Engine, note: Path) -> None:
    """Remove the temporary tag of a killed push; the caller must hold the image's lock.

    The tag stays if it now belongs to another image, or if the note is damaged.
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


def upload(  # noqa: PLR0913 - the image, its source and target
    image_id: str,
    tag: str,
    *,
    engine: Engine,
    registry: RegistryClient,
    note: Path,
    progress: Callable[[str], None],
) -> str:
    """Push an image under a tag; return the digest that the engine sent.

    Transient errors are retried. ``note`` is the file for the temporary tag. ``progress`` is called
    with the progress, and may raise an exception to end the push.

    MachineError: the engine does not report the digest. Other errors are those of `RegistryClient`.
    """
    reference = f"{registry.name}:{tag}"
    with _temporary_tag(engine, image_id, reference, note):
        return registry.retry(f"pushing {tag}", lambda: _push_once(engine, reference, progress))


@contextmanager
def _temporary_tag(engine: Engine, image_id: str, reference: str, note: Path) -> Iterator[None]:
    """Tag the image during the block; keep the tag afterwards if the image already had it."""
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
    """Push once; return the digest of the manifest that the engine created and sent.

    The digest is from the engine, not from the registry. The engine reports the size of a layer
    when it begins to send it.

    TransientError: a retry may succeed.
    Source of the messages: Docker Engine API, ImagePush.
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
        megabytes = sum(sent.values()) / 1e6  # uncompressed
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
                f" The login for {host} is missing, wrong or expired, or does not allow pushes. "
                f"Run docker login {host}."
            )
        raise CheckFailedError(text) from None
    if not digests:
        raise MachineError(
            f"The engine pushed {reference} but did not report its digest, so nothing was signed. "
            "Use Docker 23 or newer."
        )
    return digests[-1]
