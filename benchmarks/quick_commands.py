"""The quick commands, each in turn with an empty Python, as whole processes."""

import sys

from benchmarks import checkout
from benchmarks.command import Setting, main
from benchmarks.results import ROOT, Goal, Result, Section
from benchmarks.rounds import Contestant, compare
from benchmarks.samples import find
from benchmarks.table import timing_table

BASELINE = "empty Python"
COMMANDS = (
    ("--help",),
    ("list",),
    ("render", "--check"),
    ("lock", "--check"),
)


def measure(setting: Setting) -> Result:
    """Return the times of each command."""
    program = checkout.imgbuild()
    env = checkout.environment(setting.work, None)
    contestants = [Contestant(BASELINE, [sys.executable, "-c", "pass"], env, ROOT)]
    for words in COMMANDS:
        name = " ".join(("imgbuild", *words))
        contestants.append(Contestant(name, [*program, *words], env, ROOT))
    samples = compare(contestants, setting.rounds, setting.work, say=setting.say)
    table = timing_table(samples, find(samples, BASELINE))
    wall = find(samples, "imgbuild --help").median()
    return Result(
        "quick_commands",
        [Section("Quick commands", table)],
        [Goal("imgbuild --help", 0.25, wall, "s")],
        samples,
    )


if __name__ == "__main__":
    main("quick_commands", __doc__, measure, rounds=(11, 5))
