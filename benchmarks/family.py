"""The whole debian family, downloads warm: one ``imgbuild build`` beside each Dockerfile alone.

The others build the same Dockerfiles with ``docker buildx build``, one after another. They share
one layer cache, so a step that two Dockerfiles have alike runs once for both; with --apart there is
a row more in which each starts without any layer, as on a machine of its own. Everyone starts
without images, layers and Horovod wheels, in an engine of the benchmark's own, except in the row
that says so; apt's and uv's packages lie ready. No suites run; afterwards every image must import
TensorFlow and Horovod.
"""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

from benchmarks import checkout, dockerfiles, engine
from benchmarks.cold_builds import Yard, reference, yard
from benchmarks.command import Setting, main
from benchmarks.layers import family_bytes
from benchmarks.one_image import imgbuild_command
from benchmarks.results import Goal, Result, Section
from benchmarks.rounds import Contestant, compare
from benchmarks.samples import Samples, find, ratio
from benchmarks.table import times, timing_table

OURS, WARM, SERIAL, APART = (
    "imgbuild build",
    "imgbuild build, Horovod's wheels warm",
    "each Dockerfile, one after another",
    "each Dockerfile, without the others' layers",
)
#: With --quick: two images that share all but the lock and Horovod's wheel.
QUICK = 2


def measure(setting: Setting) -> Result:
    """Return the times of each way to make the family."""
    names = setting.options.images or list(checkout.debian_family())
    names = names[:QUICK] if setting.quick else names
    with yard(setting, names, single=False) as one:
        samples = compare(
            contestants(one, names, apart=setting.options.apart),
            setting.rounds,
            setting.work,
            warmups=0,
            engine_pid=one.engine.pid,
            say=setting.say,
        )
    return _result(names, samples)


def contestants(one: Yard, names: Sequence[str], *, apart: bool) -> list[Contestant]:
    """Return the ways, imgbuild's first."""
    tags = [one.image(name).tags[0] for name in names]
    theirs = [reference(name, "alone") for name in names]
    builds = [
        [*one.named(one.own[name], "alone"), *dockerfiles.labels(one.own[name])] for name in names
    ]
    forget = [
        [one.engine.buildx, "prune", "--builder=default", "--filter=type=regular", "-af"]
    ] * len(names)
    each_cold = [command for pair in zip(forget, builds, strict=True) for command in pair]

    def prove_ours(_: int) -> Mapping[str, float]:
        one.prove(tags)
        one.keep_wheels()
        return family_bytes(one.engine, tags)

    ours = imgbuild_command(one, *names)
    found = [
        Contestant(OURS, ours, one.env, prepare=lambda _: one.cold(), check=prove_ours, watch=0.2),
        Contestant(
            WARM,
            ours,
            one.env,
            prepare=lambda _: one.cold_but_wheels(),
            check=prove_ours,
        ),
        Contestant(
            SERIAL,
            one.script("serial", builds),
            one.env,
            prepare=lambda _: one.cold(),
            check=lambda _: one.prove(theirs),
        ),
        Contestant(
            APART,
            one.script("apart", each_cold),
            one.env,
            prepare=lambda _: one.cold(),
            check=lambda _: one.prove(theirs),
        ),
    ]
    return found if apart else found[:3]


def _result(names: Sequence[str], samples: list[Samples]) -> Result:
    ours, warm, serial = samples[:3]
    notes = [
        f"With the wheels warm: {times(ratio(warm, serial))} × one after another.",
        *(f"{APART}: imgbuild took {times(ratio(ours, s))} × that." for s in samples[3:]),
    ]
    title = f"The debian family, downloads warm ({len(names)} images)"
    goal = f"family of {len(names)}, downloads warm"
    return Result(
        "family",
        [Section(title, timing_table(samples, find(samples, SERIAL)), notes)],
        [
            Goal(goal, 0.5, ratio(ours, serial), "× one after another"),
        ],
        samples,
        {"images": list(names)},
    )


def add_options(parser: ArgumentParser) -> None:
    """Add what is built, and in which engine."""
    parser.add_argument("--images", nargs="+", metavar="NAME", help="not the whole family")
    parser.add_argument("--apart", action="store_true", help="also each without the others' layers")
    engine.add_options(parser)


if __name__ == "__main__":
    main("family", __doc__, measure, rounds=(1, 1), options=add_options)
