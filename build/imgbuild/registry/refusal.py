"""Say what the answers of a registry mean, in one paragraph each.

`refused` has a sentence for each status that ends the work at once, `gave_up` for those that are
tried again: 408, 425, 429 and 5xx (`imgbuild.http.raise_transient`). What the engine says when it
pushes an image's layers is read in `imgbuild.publish.upload`.
"""

import json
from collections.abc import Mapping
from math import ceil

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.http import Answer, GaveUpError
from imgbuild.registry.repository import RepositoryName

_DISK_FULL = "no space left on device"
#: The longest text of a registry that is repeated.
_LONGEST_TEXT = 200


def refused(name: RepositoryName, what: str, answer: Answer) -> CheckFailedError:
    """Return the error of an answer that another try would not change."""
    hint = {
        403: f" The login there is, if any, does not allow it: docker login {name.host}, as "
        "someone who may.",
        404: " The repository does not exist, and the registry does not create it.",
        405: " It accepts no writes: it may be a mirror.",
        413: " A proxy before it limits the size of requests.",
    }.get(answer.status, "")
    return CheckFailedError(
        f"{name}: {what} was refused: it answered {answer.status}{error_text(answer)}.{hint}"
    )


def gave_up(name: RepositoryName, error: GaveUpError) -> MachineError:
    """Return the error after the last try, with what to do."""
    if _DISK_FULL in error.reason.lower():
        hint = "Its disk is full: free space, then run this again."
    elif error.wait:
        hint = f"It asks clients to wait {ceil(error.wait)} s: run this again after that."
    elif "answered 429" in error.reason:
        hint = "It limits the rate of requests: wait, or use fewer --jobs."
    else:
        hint = (
            f"Check that {name.host} can be reached and is well (its log, its disk), then run this "
            "again."
        )
    return MachineError(f"{error} {hint}")


def error_text(answer: Answer) -> str:
    """Return the registry's own words, as ``: CODE: message``; empty if there are none."""
    try:
        error = json.loads(answer.body)["errors"][0]
        words = [str(error.get(key) or "") for key in ("code", "message")]
        detail = error.get("detail")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ""
    errno = detail.get("Err") if isinstance(detail, Mapping) else None
    if errno == 28 or _DISK_FULL in str(detail):  # ENOSPC, of Go's PathError
        words.append(_DISK_FULL)
    text = " ".join(": ".join(filter(None, words)).split())[:_LONGEST_TEXT]
    return f": {text}" if text else ""
