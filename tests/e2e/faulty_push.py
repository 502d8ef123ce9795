"""One push with one fault, however its layers are packed: what is done, and what must hold then."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from fault_counts import injected
from push_kit import explained, said

if TYPE_CHECKING:
    from push_kit import PushKit
    from registry_proxy import Asked

SECONDS = 60


def survived(kit: PushKit, fault: str, at: int) -> str:
    """Push while one request goes wrong; fail unless nobody has to do anything."""
    kit.proxy.inject(fault, at=at)
    result = kit.push()
    injected(any(asked.fault for asked in kit.proxy.asked))
    assert result.returncode == 0, said(result)
    kit.check("1.10")
    return "survived"


def given_up(kit: PushKit, fault: str, at: int) -> None:
    """Push while every request from one on goes wrong; fail unless the push says so."""
    kit.proxy.inject(fault, at=at, times=None)
    result = kit.push()
    injected(any(asked.fault for asked in kit.proxy.asked))
    explained(result, kit.proxy.host)


def signalled(kit: PushKit, number: signal.Signals, at: int, last: int) -> int:
    """Push, and send it a signal before a request of ``last``; return the push's exit code."""
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
        assert process.returncode in ({0, 130} if at > last - 2 else {130}), stderr
        assert "Traceback" not in stderr, stderr
    kit.quiet()
    return process.returncode


def completed(kit: PushKit, code: int) -> str:
    """Push again, and fail unless all is there then; before, if the push said that it was."""
    if code:
        kit.state.check()
    else:
        kit.check("1.10")
    kit.rerun()
    kit.check("1.10")
    return "rerun" if code else "survived"
