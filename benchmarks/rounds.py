"""Running contestants in turn, A B C, C B A and so on, so that drift meets all of them alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.process import Run, run
from benchmarks.samples import Samples


class WrongResultError(Exception):
    """A run ended with 0 but what it made is not right."""


@dataclass(frozen=True)
class Contestant:
    """One command to measure.

    ``prepare`` brings about the start (empty caches, a changed file) and is not measured; ``check``
    looks at the result, raises `WrongResultError`, and may return figures of its own. Both get the
    number of the round. ``done`` are the exit codes of a run that did its work.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    prepare: Callable[[int], None] | None = None
    check: Callable[[int], Mapping[str, float] | None] | None = None
    watch: float | None = None
    done: frozenset[int] = field(default=frozenset({0}))


def orders(contestants: Sequence[Contestant], rounds: int) -> Iterator[list[Contestant]]:
    """Yield the order of each round: forwards, then backwards, then forwards again."""
    for number in range(rounds):
        yield list(contestants) if number % 2 == 0 else list(reversed(contestants))


def compare(  # noqa: PLR0913  # what, how often, and where
    contestants: Sequence[Contestant],
    rounds: int,
    folder: Path,
    *,
    warmups: int = 1,
    engine_pid: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Samples]:
    """Return the samples of every contestant; one that failed once is not run again.

    The warm-ups run in the same order and are not counted, but a failure in one of them is.
    """
    runs: dict[str, list[Run]] = {one.name: [] for one in contestants}
    errors: dict[str, str] = {}
    for number, order in enumerate(orders(contestants, warmups + rounds)):
        for one in order:
            if one.name in errors:
                continue
            try:
                finished = attempt(one, number, folder, engine_pid)
            except WrongResultError as error:
                errors[one.name] = str(error)
                say(f"{one.name}: {error}")
                continue
            counted = number >= warmups
            say(f"{one.name}: {finished.wall:.2f} s{'' if counted else ' (warm-up)'}")
            if counted:
                runs[one.name].append(finished)
    return [Samples(one.name, tuple(runs[one.name]), errors.get(one.name)) for one in contestants]


def attempt(one: Contestant, number: int, folder: Path, engine_pid: int | None) -> Run:
    """Prepare, run and check once.

    Raises:
        WrongResultError: the run failed, or its result is not right.

    """
    if one.prepare:
        one.prepare(number)
    name = "".join(c if c.isalnum() else "-" for c in one.name)
    finished = run(
        one.command,
        folder / f"{name}-{number}.log",
        env=one.env,
        cwd=one.cwd,
        engine_pid=engine_pid,
        watch=one.watch,
    )
    if finished.code not in one.done:
        raise WrongResultError(f"exit code {finished.code}: {finished.said}")
    facts = one.check(number) if one.check else None
    return replace(finished, code=0, facts=facts or {})
