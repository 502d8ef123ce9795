"""How large the images are, beside what nobody can leave out, and what the family shares.

The irreducible bytes are those of the base image, of the lock that uv installs into an empty folder
and of Horovod's files without byte code; the interpreter, Open MPI and the operating system's
packages are not among them. The engine that imgbuild uses is only asked; what is installed for
measuring is installed in an engine of the benchmark's own.
"""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import checkout
from benchmarks import engine as engines
from benchmarks.cold_builds import Yard, yard
from benchmarks.command import MissingError, Setting, main
from benchmarks.engine import Engine, buildx_program, client
from benchmarks.layers import family_bytes, layers_of
from benchmarks.results import ROOT, Goal, Result, Section
from benchmarks.table import megabytes, table, times
from imgbuild.engine.endpoint import resolve_host
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import load_settings

#: With --quick: the smallest and the largest.
QUICK = (0, -1)


@dataclass(frozen=True)
class Weight:
    """Bytes of one image and of its irreducible parts."""

    name: str
    image: int
    base: int
    lock: int
    horovod: int

    @property
    def least(self) -> int:
        """The irreducible bytes."""
        return self.base + self.lock + self.horovod

    @property
    def ratio(self) -> float:
        """The image beside them."""
        return self.image / self.least


def measure(setting: Setting) -> Result:
    """Return the sizes of the family that the usual engine has."""
    engine = usual_engine()
    names = setting.options.images or list(checkout.debian_family())
    family = checkout.images(names)
    missing = [i.tags[0] for i in family if not _has(engine, i.tags[0])]
    if missing:
        raise MissingError(
            f"the engine has no {', '.join(missing)}; run `imgbuild build --all --stack debian`"
        )
    weighed = [family[i] for i in QUICK] if setting.quick else list(family)
    with yard(setting, [image.name for image in weighed], single=False) as one:
        weights = [_weigh(engine, one, image, setting.work) for image in weighed]
    return _result(weights, family_bytes(engine, [image.tags[0] for image in family]), len(family))


def usual_engine() -> Engine:
    """Return the engine that imgbuild uses on this machine."""
    host = resolve_host(load_settings(Project(ROOT).settings).engine)
    return Engine(host or "unix:///var/run/docker.sock", buildx_program(), client())


def _has(engine: Engine, reference: str) -> bool:
    return bool(engine.ask("image", "ls", "--quiet", reference).strip())


def _weigh(engine: Engine, one: Yard, image: Image, work: Path) -> Weight:
    layers = layers_of(engine, image.tags[0])
    whole = sum(layer.size for layer in layers)
    lock, horovod = _lock_bytes(one, image, work), _horovod_bytes(engine, image)
    return Weight(image.name, whole, layers[0].size, lock, horovod)


def _lock_bytes(one: Yard, image: Image, work: Path) -> int:
    """Install the lock into an empty folder and return its bytes."""
    out = work / f"lock-size-{image.name}"
    target = one.single[image.name]
    one.do(one.build(target, "--target=lock-size", f"--output=type=local,dest={out}"))
    return int((out / "bytes").read_text(encoding="ascii"))


def _horovod_bytes(engine: Engine, image: Image) -> int:
    """Return the bytes of the installed Horovod, as the image has it, without byte code."""
    run = ("run", "--rm", "--network=none", "--entrypoint=/usr/bin/find", image.tags[0])
    files = ("-path", "*/site-packages/horovod*", "-type", "f", "!", "-name", "*.pyc")
    words = (*run, "/opt/python", *files, "-printf", r"%s\n")
    found = sum(int(line) for line in engine.ask(*words).split())
    if not found:
        raise MissingError(f"{image.tags[0]} has no Horovod")
    return found


def _result(weights: Sequence[Weight], family: Mapping[str, float], count: int) -> Result:
    rows = [
        [
            w.name,
            *(megabytes(size) for size in (w.image, w.base, w.lock, w.horovod, w.least)),
            times(w.ratio),
        ]
        for w in weights
    ]
    head = ["image", "MB", "base", "lock", "Horovod", "irreducible", "ratio"]
    shared = table(
        ["family", "MB", "× the sum"],
        [
            [text, megabytes(family[key]), times(family[key] / family["sum"])]
            for text, key in (
                (f"sum of {count} images", "sum"),
                ("unique, in a graph driver's store", "unique_stored"),
                ("unique content, in a registry", "unique_content"),
            )
        ],
    )
    worst = max(w.ratio for w in weights)
    return Result(
        "image_sizes",
        [
            Section("Size of each image", table(head, rows)),
            Section("What the family shares", shared),
        ],
        [
            Goal("image size, the largest ratio", 1.15, worst, "× irreducible"),
            Goal(
                "unique bytes of the family",
                0.7,
                family["unique_stored"] / family["sum"],
                "× the sum",
            ),
        ],
        facts={"weights": [vars(w) for w in weights], "family": dict(family)},
    )


def add_options(parser: ArgumentParser) -> None:
    """Add what is weighed, and in which engine the parts are installed."""
    parser.add_argument("--images", nargs="+", metavar="NAME", help="not the whole family")
    engines.add_options(parser)


if __name__ == "__main__":
    main("image_sizes", __doc__, measure, rounds=(1, 1), options=add_options)
