"""An image's content under its immutable tag: sent by the engine, never over another image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from math import inf
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.publishing.names import lent_name
from imgbuild.publishing.pushed_bytes import PushedBytes
from imgbuild.registry.client import RegistryClient
from imgbuild.registry.manifest import Manifest
from imgbuild.retry import RetryPolicy

#: Signs, in the words of engines and registries, that another attempt would end the same way.
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


def of_image(manifest: Manifest, image_id: str) -> bool:
    """Return whether a registry's manifest is that of an image of the engine.

    The id is the digest of the configuration in a graph driver, that of the manifest in a
    containerd store.
    """
    return image_id in {manifest.digest, config_digest(manifest)}


def config_digest(manifest: Manifest) -> str:
    """Return the digest of the configuration that a manifest names, or nothing if it has none."""
    config = manifest.document().get("config")
    return str(config.get("digest", "")) if isinstance(config, Mapping) else ""


def size_of(manifest: Manifest) -> int:
    """Return the bytes of configuration and layers, packed as the registry holds them.

    Raises:
        CheckFailedError: it is no image's, but an index of several platforms.

    """
    document = manifest.document()
    if "config" not in document or "layers" not in document:
        raise CheckFailedError(
            f"{manifest.digest} is the manifest of several platforms, not of one image: imgbuild "
            "publishes images that it has built itself. Build it again."
        )
    return sum(int(part["size"]) for part in (document["config"], *document["layers"]))


def found_content(registry: RegistryClient, tag: str, image_id: str) -> Manifest | None:
    """Return the manifest that a tag stands for; None if there is none yet.

    Raises:
        CheckFailedError: it is another image, and an immutable tag never moves.

    """
    digest = registry.head(tag)
    manifest = registry.manifest(digest) if digest else None
    if manifest and not of_image(manifest, image_id):
        raise CheckFailedError(taken(registry, tag, manifest, image_id))
    return manifest


def taken(registry: RegistryClient, tag: str, manifest: Manifest, image_id: str) -> str:
    """Say that an immutable tag stands for another image, showing both."""
    return (
        f"{registry.name}:{tag} is there already, for another image: {manifest.digest} (image "
        f"{config_digest(manifest)}), and here it is image {image_id}. An immutable tag is never "
        "moved: publish under the next release (--release), or leave the one that is there."
    )


def sent_content(
    registry: RegistryClient,
    tag: str,
    name: str,
    image_id: str,
    send: Callable[[str, str, str], None],
) -> Manifest:
    """Send an image by `Sender.send` and return its manifest as the registry has it then.

    Raises:
        CheckFailedError: someone else pushed another image under this tag at the same time.

    """
    send(name, image_id, f"{registry.name}:{tag}")
    manifest = registry.manifest(tag)
    if manifest is None:
        raise CheckFailedError(
            f"{registry.name}:{tag} is not there although the engine pushed {name}: does the "
            "engine know this registry under another address? Look into its log."
        )
    if not of_image(manifest, image_id):
        raise CheckFailedError(taken(registry, tag, manifest, image_id))
    return manifest


@dataclass(frozen=True)
class Sender:
    """Pushes images by the engine; tries again while that may help.

    ``folder`` remembers the names that are lent; ``pause`` waits so many seconds; ``told`` hears an
    image and how far it is. Both may raise to end a push. ``say`` hears of each failed attempt.
    """

    engine: Engine
    folder: Path
    patience: RetryPolicy
    pause: Callable[[float], None]
    told: Callable[[str, str], None]
    say: Callable[[str], None]

    def send(self, name: str, image_id: str, reference: str) -> None:
        """Push an image under ``reference``, a name that it has for this alone.

        Raises:
            CheckFailedError: the registry refuses.
            MachineError: the registry or the engine cannot be reached, or keeps failing.

        """
        with lent_name(self.engine, name, image_id, reference, self.folder):
            for attempt in count(1):
                said = self._attempt(name, reference)
                if said is None:
                    return
                seconds = self.patience.wait(attempt, None)
                if seconds == inf:
                    raise MachineError(_gave_up(reference, said, attempt))
                tries = f"{attempt} of {self.patience.attempts} tries"
                self.say(f"{name}: {said} Again in {seconds:.1f} s ({tries}).")
                self.pause(seconds)

    def _attempt(self, name: str, reference: str) -> str | None:
        """Return what went wrong in words, if another attempt may end otherwise."""
        progress = PushedBytes()

        def hear(message: Mapping[str, object]) -> None:
            progress.hear(message)
            self.told(name, progress.text)

        try:
            self.engine.push(reference, hear)
        except CheckFailedError as error:
            said = str(error)
            if any(sign in said.lower() for sign in _FINAL):
                raise CheckFailedError(_refused(said, reference)) from None
            return said
        return None


def _refused(said: str, reference: str) -> str:
    if not any(sign in said.lower() for sign in _LOGIN):
        return said
    host = reference.partition("/")[0]
    return (
        f"{said} The login for {host} is missing, wrong or expired, or may not push there: "
        f"docker login {host}."
    )


def _gave_up(reference: str, said: str, attempts: int) -> str:
    tries = "1 try" if attempts == 1 else f"{attempts} tries"
    return (
        f"It could not be pushed to {reference.partition('/')[0]} ({tries}). {said} What is there "
        "already stays; see that the registry is well (its log, its disk), then run this again."
    )
