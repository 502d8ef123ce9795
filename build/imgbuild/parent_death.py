"""Programs that end when imgbuild is killed: `kill -9` lets it end none of them itself."""

import shutil
from collections.abc import Sequence
from functools import cache


def dies_with_parent(command: Sequence[str]) -> list[str]:
    """Return the command so that the kernel sends it SIGTERM when the thread that started it ends.

    Through setpriv(1) of util-linux, for Python's ``preexec_fn`` is not safe beside threads. Where
    there is none the command stays as it is: after a kill it then goes on to its own end, and names
    nothing. Source: prctl(2), "PR_SET_PDEATHSIG".
    """
    setpriv = _setpriv()
    return [setpriv, "--pdeathsig", "TERM", "--", *command] if setpriv else list(command)


@cache
def _setpriv() -> str | None:
    return shutil.which("setpriv")
