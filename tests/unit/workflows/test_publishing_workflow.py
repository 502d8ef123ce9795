"""What images.yml decides by itself: which runner, what is let through, whether there is work."""

from typing import Any

import pytest
from conftest import ROOT

from actions.expression import PURE, Scope
from actions.workflow import read_workflow

IMAGES = read_workflow(ROOT / ".github" / "workflows" / "images.yml")
PUBLISH = IMAGES.jobs["publish"]
MAIN = {"ref": "refs/heads/main"}


def _scope(**contexts: Any) -> Scope:
    return Scope(contexts, PURE)


@pytest.mark.parametrize(
    ("gpu", "runner", "where"),
    [
        (True, "with-gpu", "with-gpu"),
        (False, "with-gpu", "ubuntu-24.04"),
        (True, "", "ubuntu-24.04"),
        (False, "", "ubuntu-24.04"),
    ],
)
def test_where_a_shard_runs(gpu: bool, runner: str, where: str) -> None:
    scope = _scope(matrix={"gpu": gpu}, vars={"GPU_RUNNER": runner})
    assert scope.text(PUBLISH.runs_on) == where


@pytest.mark.parametrize(
    ("runner", "options", "given"),
    [
        ("", "", "--allow-skipped gpu_runs"),
        ("with-gpu", "", ""),
        ("", "--allow-substituted", "--allow-substituted"),
        ("with-gpu", "--allow-substituted", "--allow-substituted"),
    ],
)
def test_what_push_lets_through(runner: str, options: str, given: str) -> None:
    (push,) = (step for step in PUBLISH.steps if "OPTIONS" in step.env)
    scope = _scope(vars={"GPU_RUNNER": runner, "PUSH_OPTIONS": options})
    assert scope.text(push.env["OPTIONS"]) == given


@pytest.mark.parametrize(
    ("shards", "work"), [('{"include":[]}', False), ('{"include":[{"shard":"1/1"}]}', True)]
)
def test_without_work_there_is_no_matrix(shards: str, work: bool) -> None:
    scope = _scope(github=MAIN, needs={"plan": {"outputs": {"shards": shards}}})
    assert scope.condition(PUBLISH.condition) == work


@pytest.mark.parametrize(
    ("ref", "publishes"),
    [
        ("refs/heads/main", True),
        ("refs/heads/main-2", False),
        ("refs/heads/other", False),
        ("refs/tags/main", False),
        ("refs/pull/1/merge", False),
    ],
)
@pytest.mark.parametrize("job", ["plan", "publish"])
def test_only_main_publishes(job: str, ref: str, publishes: bool) -> None:
    shards = {"plan": {"outputs": {"shards": '{"include":[{"shard":"1/1"}]}'}}}
    scope = _scope(github={"ref": ref}, needs=shards)
    assert scope.condition(IMAGES.jobs[job].condition) == publishes


def test_the_defaults_name_the_registry_of_github() -> None:
    unset = dict.fromkeys(("REPOSITORY", "CACHE", "SELECTION"), "")
    scope = _scope(vars=unset, github={"repository": "me/mine"})
    assert [scope.text(IMAGES.env[name]) for name in unset] == [
        "ghcr.io/me/mine/tensorflow",
        "ghcr.io/me/mine/cache",
        "--all",
    ]
