"""What images.yml decides by itself: which runner, what is let through, whether there is work."""

from typing import Any

import pytest
from conftest import ROOT

from actions.expression import PURE, Scope
from actions.workflow import read_workflow

IMAGES = read_workflow(ROOT / ".github" / "workflows" / "images.yml")
PUBLISH = IMAGES.jobs["publish"]


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
    scope = _scope(needs={"plan": {"outputs": {"shards": shards}}})
    assert scope.condition(PUBLISH.condition) == work


def test_the_defaults_name_the_registry_of_github() -> None:
    unset = dict.fromkeys(("REPOSITORY", "CACHE", "SELECTION"), "")
    scope = _scope(vars=unset, github={"repository": "me/mine"})
    assert [scope.text(IMAGES.env[name]) for name in unset] == [
        "ghcr.io/me/mine/tensorflow",
        "ghcr.io/me/mine/cache",
        "--all",
    ]
