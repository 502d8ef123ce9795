"""Translate errors of docker-py, of the connection and of the engine itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.engine.discovery import DEFAULT_HOST

DOCTOR = "'imgbuild doctor' says what is missing and how to fix it."


class EngineUnusableError(MachineError):
    """The engine does not answer, or its disk is full: it can do nothing for any image."""


_FULL = "no space left on device"
#: Signs in what the engine itself answered → what to do.
_ANSWERED = {
    _FULL: "Its disk is full: free space with 'docker image prune' and 'docker builder prune'. ",
    "is too old|is too new|api versions below|minimum supported api version": (
        "Its API and this docker-py do not fit together: upgrade the engine. "
    ),
}
_UNANSWERED = {
    **_ANSWERED,
    "permission denied": (
        "This user may not use it: add the user to the 'docker' group and log in again. "
    ),
    # No socket, nobody who listens, no answer in time, a connection that was closed.
    "": (
        "Start it, read in its log why it was stopped or is slow, or set engine.host or "
        "DOCKER_HOST. "
    ),
}


def engine_error(error: Exception, host: str | None) -> ImgbuildError:
    """Return what to raise instead of an exception of docker-py, requests, urllib3 or Python.

    It is an `EngineUnusableError` where there was no answer at all.
    """
    from imgbuild.net.http import reason  # noqa: PLC0415 - brings requests

    # The engine's own words where it answered; docker-py quotes what it could not do otherwise.
    text = getattr(error, "explanation", None) or reason(error.__cause__ or error)
    said = " ".join(str(text).split()).rstrip(".")
    response = getattr(error, "response", None)
    if response is not None:
        return answered_error(said, host, refused=response.status_code < 500)
    remedy = _find_remedy(said, _UNANSWERED)
    return EngineUnusableError(f"{_engine(host)} cannot be used: {said}. {remedy}{DOCTOR}")


def answered_error(said: str, host: str | None, *, refused: bool) -> ImgbuildError:
    """Return what to raise for an error in the engine's own words.

    A request that it ``refused`` (HTTP 4xx) is a `CheckFailedError`, or an `InputError` for what is
    no name of an image; everything else is the machine's fault.
    """
    remedy = _find_remedy(said, _ANSWERED)
    if refused and not remedy:
        if "invalid reference format" in said.lower():
            return InputError(f"{_engine(host)} refuses: {said}. Give the name or id of an image.")
        return CheckFailedError(f"{_engine(host)} refuses: {said}.")
    kind = EngineUnusableError if _FULL in said.lower() else MachineError
    return kind(f"{_engine(host)} reports an error: {said}. {remedy}{DOCTOR}")


@contextmanager
def translate_errors(host: str | None) -> Iterator[None]:
    """Let no error of docker-py or of the connection out untranslated."""
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
