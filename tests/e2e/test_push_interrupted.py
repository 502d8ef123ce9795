"""Ctrl-C and `kill -9` at any one request of `imgbuild push`, and the push after it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from fault_counts import FaultCounts
from faulty_push import completed, signalled
from push_kit import at_each
from test_push_faults import dockerd, kits, project, requests  # noqa: F401  # fixtures

if TYPE_CHECKING:
    from push_kit import PushKit

pytestmark = pytest.mark.nightly

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGKILL: "`kill -9`"}


@pytest.mark.parametrize("number", NAMES)
def test_a_signal(
    kits: list[PushKit],  # noqa: F811
    requests: range,  # noqa: F811
    number: signal.Signals,
) -> None:
    def work(kit: PushKit, at: int) -> str:
        code = signalled(kit, number, at, requests[-1])
        assert _lent(kit) == [] or number == signal.SIGKILL, "a name was left on the engine"
        word = completed(kit, code)
        assert _lent(kit) == [], "a name was left on the engine"
        return word

    with FaultCounts(f"{NAMES[number]} before a request") as counts:
        at_each(kits, requests, counts.each(work))


def _lent(kit: PushKit) -> list[str]:
    """Return the tags that the engine's images have of the registry."""
    shown = ("--format={{.Tag}}", f"--filter=reference={kit.proxy.host}/*/*")
    tags = kit.project.docker("images", *shown).stdout.split()
    # An engine that is told to stop ends its push first, and then notes the digest, without a tag.
    return [tag for tag in tags if tag != "<none>"]
