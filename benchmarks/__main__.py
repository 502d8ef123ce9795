"""All benchmarks, one after another, and the report: ``python -m benchmarks``.

Takes about three quarters of an hour on 2 cores, half of it for the family; with --quick, which
leaves the family out, about a quarter of an hour. The machine should have nothing else to do. One
benchmark that fails, or whose prerequisites are missing, does not keep the others from running.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import engine, report
from benchmarks.command import FAILED, MACHINE, MissingError
from benchmarks.results import RESULTS, ROOT

#: The cheap ones first: they are not disturbed by what the engine still writes to the disk.
NAMES = (
    "quick_commands",
    "render_matrix",
    "growth",
    "nothing_to_do",
    "image_sizes",
    "one_image",
    "one_pin",
    "family",
)


#: Left out with --quick, unless it is named.
LONG = frozenset({"family"})
#: These build in an engine of their own; run together, in one that keeps its downloads.
BUILDING = frozenset({"nothing_to_do", "image_sizes", "one_image", "one_pin", "family"})


def main() -> None:
    """Run what is named, then write docs/evidence.md from whatever results there are."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller subjects")
    parser.add_argument("--no-report", action="store_true", help="leave docs/evidence.md alone")
    parser.add_argument("--work", type=Path, help="where temporary files go (default: TMPDIR)")
    engine.add_options(parser)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    usual = [name for name in NAMES if not (chosen.quick and name in LONG)]
    codes = _run_all(chosen.names or usual, chosen)
    if not chosen.no_report:
        report.write_report()
    sys.exit(FAILED if FAILED in codes else MACHINE if MACHINE in codes else max(codes))


def _run_all(names: Sequence[str], chosen: argparse.Namespace) -> list[int]:
    """Run them in turn and return their exit codes."""
    words = ["--quick"] if chosen.quick else []
    words += ["--work", str(chosen.work)] if chosen.work else []
    alone = [name for name in names if name not in BUILDING]
    building = [name for name in names if name in BUILDING]
    codes = [_run(name, words) for name in alone]
    if not building:
        return codes
    with tempfile.TemporaryDirectory(prefix="imgbuild-bench-", dir=chosen.work) as folder:
        try:
            with engine.measuring_engine(Path(folder), chosen) as one:
                given = ["--engine", one.host]
                given += ["--engine-pid", str(one.pid)] if one.pid else []
                return [*codes, *(_run(name, [*words, *given]) for name in building)]
        except MissingError as error:
            print(f"{', '.join(building)}: {error}", file=sys.stderr)
            return [*codes, MACHINE]


def _run(name: str, words: Sequence[str]) -> int:
    """Run one as a process of its own and return its exit code."""
    (RESULTS / f"{name}.json").unlink(missing_ok=True)  # an old result is no result of this run
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        code = process.wait()
    except BaseException:  # interrupted: it takes its own files away
        process.terminate()
        process.wait()
        raise
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    print(f"\n=== {name}: exit code {code} after {minutes}:{seconds:02}\n", flush=True)
    return code


if __name__ == "__main__":
    main()
