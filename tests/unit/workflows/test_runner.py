"""The runner does what GitHub does, as far as this project's workflows go, and refuses the rest."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actions.machine import Machine
from actions.runner import WorkflowRun, run_workflow
from actions.values import ExpressionError
from actions.workflow import WorkflowError, workflow_of

CHECKOUT = "uses: actions/checkout@v1"
Play = Callable[..., WorkflowRun]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    origin = tmp_path / "origin"
    origin.mkdir()
    commands = (
        ("init", "--quiet"),
        *(("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "c", "--allow-empty"),) * 2,
    )
    for words in commands:
        subprocess.run(["git", *words], cwd=origin, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=origin, check=True, capture_output=True, text=True
    ).stdout.strip()
    folder = tmp_path / "machine"
    folder.mkdir()
    github = {"sha": head, "run_number": "7", "token": "github's"}
    return Machine(
        origin, folder, {"PATH": os.environ["PATH"]}, github, {"ON": ""}, {"KEY": "s"}, {}, {}
    )


@pytest.fixture
def play(machine: Machine) -> Play:
    """Return how to run jobs, given as the YAML of ``jobs``."""

    def run(jobs: str, env: str = "{}") -> WorkflowRun:
        return run_workflow(workflow_of(f"on: push\nenv: {env}\njobs:\n{jobs}", "w.yml"), machine)

    return run


def _job(steps: list[str], **keys: Any) -> str:
    """Return a job's YAML after its name."""
    head = [f"    {key.replace('_', '-')}: {value}" for key, value in keys.items()]
    body = ["    steps:", *(f"      - {step}" for step in [CHECKOUT, *steps])]
    return "\n".join(["", *head, "    runs-on: x", "    timeout-minutes: 1", *body, ""])


def test_outputs_variables_and_summaries_reach_who_needs_them(play: Play, machine: Machine) -> None:
    first = _job(
        [
            '{id: a, run: "echo n=$((GITHUB_RUN_NUMBER + 1)) >> $GITHUB_OUTPUT"}',
            '{run: "echo WORD=said >> $GITHUB_ENV; echo seen >> $GITHUB_STEP_SUMMARY"}',
            "{name: last, run: \"echo $WORD $TOP\", if: env.WORD == 'said'}",
        ],
        outputs='{n: "${{ steps.a.outputs.n }}"}',
    )
    second = _job(
        [
            (
                "{name: s, run: 'echo $N ${GITHUB_TOKEN-none}', "
                'env: {N: "${{ needs.first.outputs.n }}"}}'
            )
        ],
        needs="first",
    )
    run = play(f"  second:{second}  first:{first}", env="{TOP: \"${{ vars.ON || 'off' }}\"}")
    assert [job.id for job in run.jobs] == ["first", "second"]
    assert run.of("first")[0].step("last").said == "said off\n"
    assert run.of("second")[0].step("s").said == "8 none\n"
    assert "seen\n" in machine.summaries
    assert (machine.clone / ".git" / "shallow").is_file()


def test_after_a_failure_only_what_asks_for_it_runs(play: Play) -> None:
    first = _job(
        [
            '{name: bad, run: "false | cat"}',
            '{name: next, run: "echo next"}',
            '{name: cond, if: "true", run: "echo next"}',
            '{name: end, if: always(), run: "echo end"}',
        ]
    )
    gate = _job(
        ['{name: g, run: "for r in $R; do [ $r = success ]; done"}'],
        needs="[first, second]",
        **{"if": "always()", "env": "{R: \"${{ join(needs.*.result, ' ') }}\"}"},
    )
    run = play(f"  first:{first}  second:{_job([], needs='first')}  gate:{gate}")
    assert [(one.name, one.result) for one in run.of("first")[0].steps[1:]] == [
        ("bad", "failure"),
        ("next", "skipped"),
        ("cond", "skipped"),
        ("end", "success"),
    ]
    assert [run.result(one) for one in ("first", "second", "gate")] == [
        "failure",
        "skipped",
        "failure",
    ]


def test_a_matrix_is_a_run_an_entry(play: Play) -> None:
    matrix = '{fail-fast: false, matrix: "${{ fromJSON(vars.ON) }}"}'
    job = _job(['{name: s, run: "echo $W", env: {W: "${{ matrix.w }}"}}'], strategy=matrix)
    with pytest.raises(ValueError, match="Expecting value"):
        play(f"  m:{job}")
    matrix = matrix.replace("vars.ON", """'{"include":[{"w":"a"},{"w":"b"}]}'""")
    matrix = matrix.replace('"', '\\"').replace('\\"$', '"$').replace('}}\\"', '}}"')
    job = _job(['{name: s, run: "echo $W", env: {W: "${{ matrix.w }}"}}'], strategy=matrix)
    run = play(f"  m:{job}")
    assert [one.step("s").said for one in run.of("m")] == ["a\n", "b\n"]
    empty = matrix.replace('{\\"w\\":\\"a\\"},{\\"w\\":\\"b\\"}', "")
    with pytest.raises(ExpressionError, match="refuses this matrix"):
        play(f"  m:{_job([], strategy=empty)}")


def test_sudo_brings_the_variables_that_it_is_told_to(play: Play) -> None:
    show = "sh -c 'echo ${A-no} ${B-no}'"
    run = play(
        "  j:"
        + _job(
            [
                f'{{name: one, run: "sudo {show}"}}',
                f'{{name: two, run: "sudo --preserve-env=A,C {show}"}}',
            ],
            env="{A: a, B: b}",
        )
    )
    assert run.jobs[0].step("one").said == "no no\n"
    assert run.jobs[0].step("two").said == "a no\n"


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("{uses: someone/else@v1}", "someone/else is not known"),
        ("{uses: actions/checkout@v1, with: {path: x}}", "path"),
        ('{run: "echo ${{ vars.ON }}"}', "an expression in a script"),
        ('{run: "echo word >> $GITHUB_OUTPUT"}', "not understood in GITHUB_OUTPUT"),
        ('{run: "true", working-directory: x}', "working-directory"),
        ("{name: x}", "either `uses` or `run`"),
    ],
)
def test_what_is_not_known_is_refused(play: Play, step: str, says: str) -> None:
    with pytest.raises(WorkflowError, match=says):
        play(f"  j:{_job([step])}")


def test_jobs_and_files_that_are_not_understood(play: Play) -> None:
    with pytest.raises(WorkflowError, match="container"):
        play(f"  j:{_job([], container='x')}")
    with pytest.raises(WorkflowError, match="need one another"):
        play(f"  a:{_job([], needs='b')}  b:{_job([], needs='a')}")
    with pytest.raises(WorkflowError, match="max-parallel"):
        play(f"  a:{_job([], strategy='{max-parallel: 1}')}")
    with pytest.raises(WorkflowError, match="no mapping"):
        workflow_of("[]", "w.yml")
