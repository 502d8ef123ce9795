"""Inputs that are no Python packages: whether each is there and what was pinned.

Offline this takes one connection timeout, since all are asked at once.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import requests

from imgbuild.audit.client import Client
from imgbuild.audit.facts import Contradiction
from imgbuild.audit.failure import ReadError, UnreachableError
from imgbuild.audit.registry import BaseImage, judge_image
from imgbuild.audit.signature import State, judge_signature
from imgbuild.parallel import in_parallel
from imgbuild.yaml_file import Location

_CHUNK = 1 << 20
_WORKERS = 16


@dataclass(frozen=True)
class OtherInput:
    """Something to download. Without ``sha256`` nobody has recorded yet what it must be.

    ``place`` is where in matrix.yaml it is pinned. Of a ``repository`` of packages it is the signed
    index, which is proved where its ``keyring`` is known here; a base image checks it in any case.
    An ``image`` is asked from its registry, by digest.
    """

    name: str
    url: str
    sha256: str | None = None
    place: Location = ()
    keyring: Path | None = None
    repository: bool = False
    image: BaseImage | None = None


@dataclass(frozen=True)
class InputState:
    """How an input was found. ``detail`` is a short cause; bytes and seconds are what it took."""

    input: OtherInput
    state: State
    detail: str = ""
    bytes_read: int = 0
    seconds: float = 0.0


def look_at_all(
    client: Client, inputs: tuple[OtherInput, ...], *, download: bool
) -> list[InputState]:
    """Return the state of each input; all are asked at once."""
    return in_parallel(lambda i: look_at(client, i, download=download), inputs, _WORKERS)


def look_at(client: Client, item: OtherInput, *, download: bool) -> InputState:
    """Return an input's state: whether it answers, and with ``download`` whether it is right."""
    begin = time.monotonic()
    if item.image:
        state, detail = judge_image(item.image)
        return InputState(item, state, detail, seconds=time.monotonic() - begin)
    download = download or item.keyring is not None  # an index is small, its signature the proof
    headers = {} if download else {"Range": "bytes=0-0"}
    try:
        with client.answering(item.url, headers) as answer:
            if not answer.ok:
                cause = f"{answer.status_code} {answer.reason}"
                return InputState(item, "not reachable from here", cause)
            state, detail, size = _hashed(answer, item) if download else _reached(item)
    except UnreachableError as error:
        seconds = time.monotonic() - begin
        return InputState(item, "not reachable from here", error.cause, seconds=seconds)
    except ReadError as error:
        return InputState(item, "not reachable from here", str(error))
    return InputState(item, state, detail, size, time.monotonic() - begin)


def _reached(item: OtherInput) -> tuple[State, str, int]:
    known = item.sha256 or item.repository
    return ("reachable" if known else "unlocked"), "", 0


def _hashed(answer: requests.Response, item: OtherInput) -> tuple[State, str, int]:
    if item.keyring:
        content = answer.content
        state, detail = judge_signature(content, item.keyring)
        return state, detail, len(content)
    digest, size = hashlib.sha256(), 0
    for chunk in answer.iter_content(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    if item.sha256 is None:
        return "unlocked", f"sha256 {digest.hexdigest()}", size
    if digest.hexdigest() != item.sha256:
        return "differs", f"sha256 {digest.hexdigest()}", size
    return "verified", "", size


def compare_inputs(states: Iterable[InputState]) -> Iterator[Contradiction]:
    """Yield the inputs whose content is not what the matrix pins."""
    for found in states:
        if found.state == "differs":
            yield Contradiction(
                "sha256",
                found.input.name,
                found.input.place or ("sources", found.input.name, "sha256"),
                f"{found.input.url} has {found.detail}",
                _change(found.input),
            )


def _change(item: OtherInput) -> str:
    if item.keyring:
        return "the key may have been rotated: find out before trusting another"
    return f"pinned is {item.sha256}: find out which is right before changing it"
