"""One pin changed: time and bytes written, beside the same change in a single-stage Dockerfile.

One package of the lock gets another version, as after ``imgbuild lock``. What was compiled is kept
on both sides as each keeps it: Horovod's wheel here, layers there. Both images are built and
their layers cached before; the new version is fetched before too. Every round is another version,
so nothing of it is cached. The bytes are those of the layers that the engine did not have before.
"""

import re
from argparse import ArgumentParser
from dataclasses import dataclass

from benchmarks import engine
from benchmarks.cold_builds import Yard, reference, yard
from benchmarks.command import Setting, main
from benchmarks.layers import Layer, layers_of, new_bytes
from benchmarks.one_image import QUICK, USUAL, imgbuild_command
from benchmarks.process import run
from benchmarks.results import Result, Section
from benchmarks.rounds import Contestant, WrongResultError, compare
from benchmarks.samples import Samples, ratio
from benchmarks.table import megabytes, table, times, timing_table

PACKAGE = "astor"
OURS, SINGLE = "imgbuild build", "one stage, pip"


@dataclass(frozen=True)
class Version:
    """A release of the package, with its wheel's sha256."""

    number: str
    sha256: str


#: Releases before the locked one that run on Python 3.6, pure Python, 27 kB each. The package is of
#: the last layer, as all are that no other version of TensorFlow shares.
VERSIONS = (
    Version("0.8.0", "0e41295809baf43ae8303350e031aff81ae52189b6f881f36d623fa8b2f1960e"),
    Version("0.7.1", "fb503b9e2fdd05609fbf557b916b4a7824171203701660f0c55bbf5a7a68713e"),
    Version("0.7.0", "8c26fd9d5f216401d2908ccbf8890200329391af35471dba515fa5eb0af0021d"),
)


def measure(setting: Setting) -> Result:
    """Return the times and the bytes of both."""
    name = setting.options.image or (QUICK if setting.quick else USUAL)
    rounds = min(setting.rounds, len(VERSIONS))
    with yard(setting, [name]) as one:
        start = _build_first(one, name, setting)
        change = Change(one, name, start)
        for version in VERSIONS[:rounds]:
            change.fetch(version)
        samples = compare(
            [
                Contestant(
                    OURS,
                    imgbuild_command(one, name),
                    one.env,
                    prepare=change.make,
                    check=change.check_ours,
                ),
                Contestant(
                    SINGLE,
                    one.named(one.single[name], "single"),
                    one.env,
                    prepare=change.make,
                    check=change.check_single,
                ),
            ],
            rounds,
            setting.work,
            warmups=0,
            engine_pid=one.engine.pid,
            say=setting.say,
        )
    return _result(name, samples)


class Change:
    """Writes a lock with another version, and finds out what the builds of it added."""

    def __init__(self, one: Yard, name: str, start: dict[str, list[Layer]]) -> None:
        self._one = one
        self._name = name
        self._start = start
        self._lock = one.project.locks / one.image(name).lock_name
        self._text = self._lock.read_text(encoding="utf-8")

    def make(self, number: int) -> None:
        """Write the lock of a round."""
        self._write(VERSIONS[number])

    def fetch(self, version: Version) -> None:
        """Bring the version into uv's cache and into pip's wheelhouse."""
        self._write(version)
        for stage in ("wheelhouse", "lock"):
            target = self._one.single[self._name]
            self._one.do(self._one.build(target, f"--target={stage}", "--output=type=cacheonly"))

    def check_ours(self, number: int) -> dict[str, float]:
        """Prove the image and return its new bytes."""
        return self._check(number, OURS, self._one.image(self._name).tags[0])

    def check_single(self, number: int) -> dict[str, float]:
        """Prove the image and return its new bytes."""
        return self._check(number, SINGLE, reference(self._name, "single"))

    def _check(self, number: int, kind: str, image: str) -> dict[str, float]:
        self._one.prove([image])
        words = ("run", "--rm", "--network=none", "--entrypoint=/opt/python/bin/python3", image)
        code = f"import pkg_resources as p; print(p.get_distribution('{PACKAGE}').version)"
        found = self._one.engine.ask(*words, "-c", code).split()[-1]
        if found != VERSIONS[number].number:
            raise WrongResultError(f"{image} has {PACKAGE} {found}")
        return {"written": float(new_bytes(layers_of(self._one.engine, image), self._start[kind]))}

    def _write(self, version: Version) -> None:
        self._lock.write_text(changed_lock(self._text, version), encoding="utf-8")


def changed_lock(text: str, version: Version) -> str:
    """Return a lock with another version of the package.

    Raises:
        ValueError: the lock does not have the package.

    """
    entry = f"{PACKAGE}=={version.number} \\\n    --hash=sha256:{version.sha256}\n"
    pattern = rf"^{PACKAGE}==\S+ \\\n(?:    --hash=\S+(?: \\)?\n)+"
    changed, count = re.subn(pattern, lambda _: entry, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"the lock does not have {PACKAGE} once")
    return changed


def _build_first(one: Yard, name: str, setting: Setting) -> dict[str, list[Layer]]:
    """Build both images before the change and return their layers."""
    setting.say("building both before the change")
    done = run(imgbuild_command(one, name), setting.work / "first.log", env=one.env)
    if done.code:
        raise RuntimeError(f"imgbuild build: {done.said}")
    one.do(one.named(one.single[name], "single"))
    images = {OURS: one.image(name).tags[0], SINGLE: reference(name, "single")}
    return {kind: layers_of(one.engine, image) for kind, image in images.items()}


def _result(name: str, samples: list[Samples]) -> Result:
    ours, single = samples
    written = table(
        ["", "MB written"], [[one.name, megabytes(one.median("written"))] for one in samples]
    )
    notes = [f"imgbuild wrote {times(ratio(ours, single, 'written'))} × the bytes."]
    return Result(
        "one_pin",
        [
            Section(f"One pin changed ({PACKAGE} of {name})", timing_table(samples, single)),
            Section("Bytes written by the same change", written, notes),
        ],
        samples=samples,
        facts={"image": name, "package": PACKAGE},
    )


def add_options(parser: ArgumentParser) -> None:
    """Add what is built, and in which engine."""
    parser.add_argument("--image", help=f"which (default: {USUAL}; quick: {QUICK})")
    engine.add_options(parser)


if __name__ == "__main__":
    main("one_pin", __doc__, measure, rounds=(2, 1), options=add_options)
