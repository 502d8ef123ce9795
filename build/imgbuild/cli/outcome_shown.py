"""Telling the display what became of an image, and the outcome what the display has timed."""

from dataclasses import replace

from imgbuild.build.outcome import Outcome
from imgbuild.engine.display import BuildDisplay
from imgbuild.plan.plan import Action


def shown(outcome: Outcome, display: BuildDisplay) -> Outcome:
    """Show an outcome; return it with the image's own build time in place of its whole bake's."""
    name = outcome.item.image.name
    display.finished(name, _word(outcome), outcome.error)
    seconds = display.seconds(name)
    return outcome if seconds is None else replace(outcome, build_seconds=seconds)


def _word(outcome: Outcome) -> str:
    if outcome.ok:
        return "up to date" if outcome.item.action is Action.NOTHING else "named"
    cancelled = outcome.error is not None and outcome.error.startswith("cancelled")
    return "cancelled" if cancelled else "failed"
