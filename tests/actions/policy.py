"""This project's rules for workflows: each returns what breaks it, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actions.expression import expressions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actions.workflow import Job, Workflow

#: Whoever uses a tag or branch of an action runs what its owner, or a thief, puts there next.
_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
_GITHUB_LIMIT = 360  # minutes a job on GitHub's own runners may take
#: Events in which a stranger's change runs with this repository's secrets.
_DANGEROUS = {"pull_request_target", "workflow_run", "issue_comment", "issues", "discussion"}
#: A pull request may come from anyone: its jobs read, and nothing else.
_OPEN = {"pull_request"}
#: What is not of this branch was not reviewed, and is not published.
_REVIEWED = "github.ref == 'refs/heads/main'"


def problems(workflow: Workflow, text: str) -> list[str]:
    """Return what is wrong with a workflow, whose file holds ``text``."""
    return [said for rule in RULES for said in rule(workflow, text)]


def pinned_actions(workflow: Workflow, text: str) -> Iterator[str]:
    """Demand that actions are pinned by a whole commit, and which release that is."""
    for job, step in _steps(workflow):
        if step.uses and not _PINNED.fullmatch(step.uses):
            yield f"{job.id}: {step.uses} is not pinned by a commit"
    for line in text.splitlines():
        if re.search(r"\buses:", line) and not re.search(r"# v\d+\.\d+\.\d+$", line):
            yield f"no release is named after: {line.strip()}"


def known_actions(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand no action but GitHub's own checkout, which leaves no token behind."""
    for job, step in _steps(workflow):
        if step.uses and not step.uses.startswith("actions/checkout@"):
            yield f"{job.id}: {step.uses.partition('@')[0]} is used; a command would do"
        elif step.uses and step.given.get("persist-credentials") is not False:
            yield f"{job.id}: the checkout leaves its token in the clone"


def timeouts(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand that every job ends by itself."""
    for job in workflow.jobs.values():
        if not isinstance(job.timeout, int) or not 0 < job.timeout <= _GITHUB_LIMIT:
            yield f"{job.id} has no timeout-minutes up to {_GITHUB_LIMIT}"


def permissions(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand that the workflow has none, and that each job says the little that it needs."""
    if workflow.permissions != {}:
        yield "the workflow's permissions must be {}"
    allowed = {("contents", "read"), ("packages", "write")}
    if _OPEN & {*workflow.triggers}:
        allowed.discard(("packages", "write"))
    for job in workflow.jobs.values():
        if not isinstance(job.permissions, dict):
            yield f"{job.id} says nothing of its permissions"
            continue
        for what in job.permissions.items():
            if what not in allowed:
                yield f"{job.id} must not have {': '.join(what)}"


def only_from_main(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand that a job which writes packages is of ``main``; who starts a run chooses its branch.

    The events do not tell: one that is added later, or a branch, would publish what it brings.
    """
    for job in workflow.jobs.values():
        given = job.permissions if isinstance(job.permissions, dict) else {}
        whole = str(job.condition)
        # `a && b || c` may be true where `a` is not.
        of_main = whole.partition(" && ")[0] == _REVIEWED and "||" not in whole
        if given.get("packages") == "write" and not of_main:
            yield f"{job.id} writes packages: its `if` must be {_REVIEWED}, or that && more"


def triggers(workflow: Workflow, text: str) -> Iterator[str]:
    """Demand that no event lets a stranger's change run with secrets."""
    for event in sorted(_DANGEROUS & {*workflow.triggers}):
        yield f"{event} gives strangers the secrets"
    if _OPEN & {*workflow.triggers} and any("secrets." in one for one in expressions(text)):
        yield "a workflow for pull requests names secrets"


def concurrency(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand that runs of one thing do not overlap, and that it is said which one stays."""
    if not workflow.concurrency or "cancel-in-progress" not in workflow.concurrency:
        yield "there is no concurrency group"


def shell(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand scripts with pipefail: GitHub's default is ``bash -e`` alone."""
    if workflow.defaults != {"run": {"shell": "bash"}}:
        yield "defaults.run.shell must be bash, which has pipefail"


def no_expressions_in_scripts(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand that scripts are told things by the environment: inserted text would be code."""
    for job, step in _steps(workflow):
        for one in expressions(step.run or ""):
            yield f"{job.id}: the script of {step.name!r} has ${{{{ {one} }}}} in it"


def no_foreign_text(workflow: Workflow, text: str) -> Iterator[str]:
    """Demand that nothing which strangers write (titles, branches, messages) is used."""
    del workflow
    for one in expressions(text):
        if re.search(r"github\.(event\.|head_ref)", one):
            yield f"${{{{ {one} }}}} may hold a stranger's text"


def gate(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand that the job ``gate`` needs every other one, and runs also when one failed."""
    job = workflow.jobs.get("gate")
    if not job:
        return
    for other in sorted({*workflow.jobs} - {"gate"} - {*job.needs}):
        yield f"gate does not need {other}"
    if job.condition != "always()":
        yield "gate must run with if: always(), for a job that is skipped counts as passed"
    if "needs.*.result" not in str(job.env):
        yield "gate does not look at the results"


def references(workflow: Workflow, _text: str) -> Iterator[str]:
    """Demand that what an expression names of other jobs and steps is there."""
    for job in workflow.jobs.values():
        for need in job.needs:
            if need not in workflow.jobs:
                yield f"{job.id} needs {need}, which is no job"
        for one in _expressions_of(job):
            yield from _unknown_outputs(workflow, job, one)


def _unknown_outputs(workflow: Workflow, job: Job, text: str) -> Iterator[str]:
    for need, name in re.findall(r"needs\.([\w-]+)\.outputs\.([\w-]+)", text):
        if need not in job.needs or name not in workflow.jobs[need].outputs:
            yield f"{job.id}: needs.{need}.outputs.{name} is no output of a job that it needs"
    for step in re.findall(r"steps\.([\w-]+)\.", text):
        if step not in {one.id for one in job.steps}:
            yield f"{job.id}: there is no step {step}"


def _expressions_of(job: Job) -> list[str]:
    values: list[Any] = [job.runs_on, job.strategy, job.env, job.outputs, job.name]
    values += [one for step in job.steps for one in (step.env, step.given)]
    conditions = [str(job.condition), *(str(step.condition) for step in job.steps)]
    return [one for value in values for one in expressions(str(value))] + conditions


def _steps(workflow: Workflow) -> Iterator[tuple[Job, Any]]:
    for job in workflow.jobs.values():
        for step in job.steps:
            yield job, step


RULES: tuple[Callable[[Workflow, str], Iterator[str]], ...] = (
    pinned_actions,
    known_actions,
    timeouts,
    permissions,
    only_from_main,
    triggers,
    concurrency,
    shell,
    no_expressions_in_scripts,
    no_foreign_text,
    gate,
    references,
)
