"""Ctrl-C and `kill -9` at any one request of `imgbuild push`, and the push after it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest
from fault_counts import FaultCounts, injected
from push_kit import at_each
from test_push_faults import dockerd, kits, project, requests  # noqa: F401  # fixtures

if TYPE_CHECKING:
    from push_kit import PushKit
    from registry_proxy import Asked

SECONDS = 60
NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGKILL: "`kill -9`"}


@pytest.mark.parametrize("number", NAMES)
def test_a_signal(
    kits: list[PushKit],  # noqa: F811
    requests: range,  # noqa: F811
    number: signal.Signals,
) -> None:
    def work(kit: PushKit, at: int) -> str:
        sent = threading.Event()

        def send(asked: Asked) -> None:
            if asked.number == at:
                process.send_signal(number)
                sent.set()

        process = kit.start()
        kit.proxy.before = send
        _, stderr = process.communicate(timeout=SECONDS)
        kit.proxy.before = None
        injected(sent.is_set())
        if number == signal.SIGINT:
            # Before the last requests it may come too late to stop anything.
            assert process.returncode in ({0, 130} if at > requests[-3] else {130}), stderr
            assert "Traceback" not in stderr, stderr
        kit.quiet()
        assert _lent(kit) == [] or number == signal.SIGKILL, "a name was left on the engine"
        return _completed(kit, process.returncode)

    with FaultCounts(f"{NAMES[number]} before a request") as counts:
        at_each(kits, requests, counts.each(work))


def _completed(kit: PushKit, code: int) -> str:
    if code:
        kit.state.check()
    else:
        kit.check("1.10")
    kit.rerun()
    kit.check("1.10")
    assert _lent(kit) == [], "a name was left on the engine"
    return "rerun" if code else "survived"


def _lent(kit: PushKit) -> list[str]:
    """Return the tags that the engine's images have of the registry."""
    shown = ("--format={{.Tag}}", f"--filter=reference={kit.proxy.host}/*/*")
    tags = kit.project.docker("images", *shown).stdout.split()
    # An engine that is told to stop ends its push first, and then notes the digest, without a tag.
    return [tag for tag in tags if tag != "<none>"]
