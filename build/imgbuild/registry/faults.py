"""What a registry's answers mean, in one paragraph each."""

import json
from collections.abc import Mapping
from math import ceil

from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.registry.exchange import Answer
from imgbuild.registry.patience import PassingError, retry_after
from imgbuild.registry.repository import RepositoryName

#: Longest text of a registry that is repeated.
_LONGEST = 200
_DISK_FULL = "no space left on device"


def passing(answer: Answer) -> PassingError | None:
    """Return the fault of an answer that another try may change: 429, and the server's own."""
    if answer.status != 429 and answer.status < 500:
        return None
    return PassingError(f"it answered {answer.status}{said(answer)}", retry_after(answer.headers))


def gave_up(name: RepositoryName, what: str, error: PassingError, attempts: int) -> MachineError:
    """Return the error after the last try."""
    reason = str(error)
    if _DISK_FULL in reason.lower():
        hint = "Its disk is full: free some, then run this again."
    elif error.wait:
        hint = f"It asks to be left alone for {ceil(error.wait)} s: run this again after that."
    elif "answered 429" in reason:
        hint = "It limits how often it is asked: wait, or let fewer jobs run at once."
    else:
        hint = (
            f"See that {name.host} can be reached and is well (its log, its disk), then run this "
            "again."
        )
    tries = "1 try" if attempts == 1 else f"{attempts} tries"
    return MachineError(f"{name}: {what} failed: {reason} ({tries}). {hint}")


def refused(name: RepositoryName, what: str, answer: Answer) -> ImgbuildError:
    """Return the error of an answer that another try would not change."""
    hint = {
        403: f" The login there is, if any, does not allow it: docker login {name.host}, as "
        "someone who may.",
        404: " There is no such repository, and the registry does not make one by itself.",
        405: " It takes nothing: it may be a mirror.",
        413: " Something before it limits the size of what is sent.",
    }.get(answer.status, "")
    return CheckFailedError(
        f"{name}: {what} was refused: it answered {answer.status}{said(answer)}.{hint}"
    )


def login_needed(name: RepositoryName, *, has_one: bool) -> CheckFailedError:
    """Return the error of a login that is not there, or that the registry does not take."""
    if has_one:
        return CheckFailedError(
            f"{name}: the registry refuses the login of this machine: it is wrong or has expired, "
            f"or it may not do this: docker login {name.host}."
        )
    return CheckFailedError(
        f"{name}: the registry wants a login, and this machine has none: docker login {name.host}."
    )


def said(answer: Answer) -> str:
    """Return the registry's own words, as ``: CODE: message``; nothing if there are none."""
    try:
        error = json.loads(answer.body)["errors"][0]
        words = [str(error.get(key) or "") for key in ("code", "message")]
        detail = error.get("detail")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ""
    text = ": ".join([*filter(None, words), *_details(detail)])
    return f": {' '.join(text.split())[:_LONGEST]}" if text else ""


def _details(detail: object) -> list[str]:
    """Return what tells of a server's own trouble, such as a full disk: ``{"Err": 28}``."""
    if isinstance(detail, Mapping) and detail.get("Err") == 28:  # ENOSPC, of Go's PathError
        return [_DISK_FULL]
    return [_DISK_FULL] if _DISK_FULL in str(detail) else []
