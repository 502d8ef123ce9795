# ruff: noqa: F811  # the fixture's name is also what tests call it
"""How often a build asks the registry that it reads and writes as a cache."""

from pathlib import Path

from test_cached import REF, Machines
from test_produce import Bench, bench  # noqa: F401  # the fixture

from imgbuild.caches.place import RegistryPlace


def test_what_was_read_from_a_cache_is_not_asked_of_it_again(bench: Bench, tmp_path: Path) -> None:
    machines = Machines(bench, tmp_path, RegistryPlace(REF))
    machines.build()
    machines.another()
    machines.build()
    calls = bench.engine.calls
    assert calls.count("pull") == 4, "two images, two reports"
    assert "push" not in calls


def test_nothing_to_do_pulls_nothing(bench: Bench, tmp_path: Path) -> None:
    machines = Machines(bench, tmp_path, RegistryPlace(REF))
    machines.build()
    bench.engine.calls.clear()
    assert machines.actions() == ["nothing", "nothing"]
    assert not {*bench.engine.calls} & {"pull", "push", "save", "load"}
