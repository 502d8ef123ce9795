"""One image, downloads warm: imgbuild, one single-stage Dockerfile with pip, and the floor.

Every run starts without images and without layers, in an engine of the benchmark's own; packages of
apt, uv and pip lie ready in cache mounts. imgbuild starts without any Horovod wheel, except in the
row that says so. The floor is what nobody can leave out: uv installs the lock into a folder from
its warm cache and Horovod is compiled, in a container that has the compilers already, and no image
is made of it. Nothing is tested in the image while the clock runs; afterwards every image must
import TensorFlow and Horovod.
"""

from argparse import ArgumentParser

from benchmarks import checkout, engine
from benchmarks.cold_builds import Yard, reference, yard
from benchmarks.command import Setting, main
from benchmarks.results import Goal, Result, Section
from benchmarks.rounds import Contestant, compare
from benchmarks.samples import Samples, ratio
from benchmarks.table import times, timing_table

#: The first whose wheel needs no other compiler, and the one that compiles fastest.
USUAL, QUICK = "tf-1.15-cpu-debian", "tf-1.10-cpu-debian"


def measure(setting: Setting) -> Result:
    """Return the times of each way to make the image."""
    name = setting.options.image or (QUICK if setting.quick else USUAL)
    with yard(setting, [name]) as one:
        samples = compare(
            contestants(one, name),
            setting.rounds,
            setting.work,
            warmups=0,
            engine_pid=one.engine.pid,
            say=setting.say,
        )
    return _result(name, samples)


def contestants(one: Yard, name: str) -> list[Contestant]:
    """Return the four ways."""
    target = one.single[name]
    single = reference(name, "single")
    tools = one.build(target, "--target=tools", "--output=type=cacheonly")
    floor = one.build(target, "--target=floor", "--output=type=cacheonly")

    def prepare_floor(_: int) -> None:
        one.cold()
        one.do(tools)

    def prove_and_keep(_: int) -> None:
        one.prove([one.image(name).tags[0]])
        one.keep_wheels()

    return [
        Contestant(
            "imgbuild build",
            imgbuild_command(one, name),
            env=one.env,
            prepare=lambda _: one.cold(),
            check=prove_and_keep,
            watch=0.1,
        ),
        Contestant(
            "imgbuild build, Horovod's wheel warm",
            imgbuild_command(one, name),
            env=one.env,
            prepare=lambda _: one.cold_but_wheels(),
            check=lambda _: one.prove([one.image(name).tags[0]]),
        ),
        Contestant(
            "one stage, pip",
            one.named(target, "single"),
            env=one.env,
            prepare=lambda _: one.cold(),
            check=lambda _: one.prove([single]),
        ),
        Contestant("floor", floor, env=one.env, prepare=prepare_floor),
    ]


def imgbuild_command(one: Yard, *names: str) -> list[str]:
    """Return the command that builds images of the debian stack, without their suites."""
    versions = [word for name in names for word in ("--tf", one.image(name).minor)]
    chosen = ["--stack", "debian", "--mpi", "openmpi", "--no-test"]
    return [*checkout.imgbuild(), "build", "--project", str(one.project.root), *chosen, *versions]


def _result(name: str, samples: list[Samples]) -> Result:
    ours, warm, single, floor = samples
    note = (
        f"With the wheel warm: {times(ratio(warm, floor))} × the floor, "
        f"{times(ratio(warm, single))} × one stage."
    )
    return Result(
        "one_image",
        [Section(f"One image ({name}), downloads warm", timing_table(samples, floor), [note])],
        [
            Goal("one image, downloads warm", 1.3, ratio(ours, floor), "× the floor"),
            Goal("one image, downloads warm", 0.6, ratio(ours, single), "× one stage with pip"),
        ],
        samples,
        {"image": name},
    )


def add_options(parser: ArgumentParser) -> None:
    """Add what is built, and in which engine."""
    parser.add_argument("--image", help=f"which (default: {USUAL}; quick: {QUICK})")
    engine.add_options(parser)


if __name__ == "__main__":
    main("one_image", __doc__, measure, rounds=(2, 1), options=add_options)
