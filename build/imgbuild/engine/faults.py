"""Translate errors of docker-py, the connection and the engine into those of imgbuild."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.engine.discovery import DEFAULT_HOST

DOCTOR = "'imgbuild doctor' says what is missing and how to fix it."
REGISTRY = "Check the registry in the image's name, and whether the engine can reach it."


class EngineUnusableError(MachineError):
    """The engine does not answer or its disk is full, so work on every image fails."""


_FULL = "no space left on device"
#: Texts in errors that the engine returned, separated by ``|``, and what to do.
_ANSWERED = {
    _FULL: "Its disk is full: free space with 'docker image prune' and 'docker builder prune'. ",
    "is too old|is too new|api versions below|minimum supported api version": (
        "Its API is not compatible with this docker-py: upgrade the engine. "
    ),
}
_UNANSWERED = {
    **_ANSWERED,
    "permission denied": (
        "This user has no access to it: add the user to the 'docker' group and log in again. "
    ),
    # Every other error: no socket, nothing that listens, no answer in time, a closed connection.
    "": (
        "Start it, or read in its log why it stopped or is slow. If it has another address, set "
        "engine.host or DOCKER_HOST. "
    ),
}
#: Texts in errors of the engine if a registry does not answer. Go's package ``net`` writes them.
_NO_REGISTRY = ("dial tcp", "i/o timeout", "client.timeout exceeded")


def engine_error(error: Exception, host: str | None) -> ImgbuildError:
    """Return the error to raise instead of one of docker-py, requests, urllib3 or Python.

    It is an `EngineUnusableError` if the engine did not answer at all.
    """
    from imgbuild.net.http import reason  # noqa: PLC0415 - brings requests

    # If the engine answered, use its own message. If not, use the cause, because docker-py's own
    # text only quotes the failed request.
    text = getattr(error, "explanation", None) or reason(error.__cause__ or error)
    said = " ".join(str(text).split()).rstrip(".")
    response = getattr(error, "response", None)
    if response is not None:
        return answered_error(said, host, refused=response.status_code < 500)
    remedy = _find_remedy(said, _UNANSWERED)
    return EngineUnusableError(f"{_engine(host)} cannot be used: {said}. {remedy}{DOCTOR}")


def answered_error(said: str, host: str | None, *, refused: bool) -> ImgbuildError:
    """Return the error to raise for an error message of the engine.

    A request that the engine ``refused`` (HTTP 4xx) is a `CheckFailedError`, or an `InputError` if
    the name of the image is invalid. Everything else is a `MachineError`, including a full disk
    (`EngineUnusableError`) and an incompatible API.
    """
    remedy = _find_remedy(said, _ANSWERED)
    if refused and not remedy:
        if "invalid reference format" in said.lower():
            return InputError(f"{_engine(host)} refused: {said}. Give the name or id of an image.")
        return CheckFailedError(f"{_engine(host)} refused: {said}.")
    if any(sign in said.lower() for sign in _NO_REGISTRY):
        return MachineError(f"{_engine(host)} reported an error: {said}. {REGISTRY}")
    kind = EngineUnusableError if _FULL in said.lower() else MachineError
    return kind(f"{_engine(host)} reported an error: {said}. {remedy}{DOCTOR}")


def without_advice(error: Exception) -> str:
    """Return the text of an error without the advice at its end."""
    return str(error).removesuffix(DOCTOR).removesuffix(REGISTRY).strip()


@contextmanager
def translate_errors(host: str | None) -> Iterator[None]:
    """Translate all errors of docker-py and of the connection in the block."""
    import requests  # noqa: PLC0415  # as slow to import as docker-py itself
    import urllib3  # noqa: PLC0415
    from docker.errors import DockerException, StreamParseError  # noqa: PLC0415

    library = (requests.RequestException, urllib3.exceptions.HTTPError)
    try:
        yield
    except (DockerException, StreamParseError, *library, OSError) as error:
        raise engine_error(error, host) from error


def _engine(host: str | None) -> str:
    return f"The engine at {host or DEFAULT_HOST}"


def _find_remedy(said: str, remedies: Mapping[str, str]) -> str:
    for signs, remedy in remedies.items():
        if any(sign in said.lower() for sign in signs.split("|")):
            return remedy
    return ""
