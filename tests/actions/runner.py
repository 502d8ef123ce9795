"""Runs a workflow's jobs in their order, one at a time, on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actions.expression import PURE, Scope
from actions.values import ExpressionError, as_text
from actions.workflow import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from actions.machine import Machine
    from actions.workflow import Job, Step, Workflow

_STATUS = ("success", "failure", "always", "cancelled")
_ACTIONS = {"actions/checkout": "checkout"}


@dataclass(frozen=True)
class StepRun:
    """What became of a step: ``success``, ``failure`` or ``skipped``, and what it printed."""

    name: str
    result: str
    said: str = ""


@dataclass
class JobRun:
    """What became of a job, or of one entry of its matrix."""

    id: str
    name: str
    result: str = "success"
    runs_on: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    steps: list[StepRun] = field(default_factory=list)

    def step(self, name: str) -> StepRun:
        """Return the step of this name."""
        return next(one for one in self.steps if one.name == name)


@dataclass
class WorkflowRun:
    """What became of a workflow: its jobs, in the order in which they ran."""

    jobs: list[JobRun] = field(default_factory=list)

    @property
    def said(self) -> str:
        """Everything that all scripts printed."""
        return "\n".join(step.said for job in self.jobs for step in job.steps)

    def of(self, job_id: str) -> list[JobRun]:
        """Return the runs of a job: one, or one an entry of its matrix."""
        return [one for one in self.jobs if one.id == job_id]

    def result(self, job_id: str) -> str:
        """Return the result of a job, of all entries of its matrix together."""
        results = {one.result for one in self.of(job_id)}
        return next((one for one in ("failure", "skipped") if one in results), "success")


def run_workflow(
    workflow: Workflow, machine: Machine, *, only: Collection[str] = ()
) -> WorkflowRun:
    """Run all jobs, or ``only`` some that need no other.

    Raises:
        WorkflowError: something is asked for that this runner does not know.
        ExpressionError: the same, in an expression.

    """
    runner = _Runner(workflow, machine)
    for job in _ordered(workflow):
        if not only or job.id in only:
            runner.job(job)
    return runner.run


def _ordered(workflow: Workflow) -> Iterator[Job]:
    """Give each job after those that it needs."""
    waiting = dict(workflow.jobs)
    while waiting:
        ready = [job for job in waiting.values() if not {*job.needs} & {*waiting}]
        if not ready:
            raise WorkflowError(f"these jobs need one another: {', '.join(waiting)}")
        for job in ready:
            yield waiting.pop(job.id)


@dataclass
class _Runner:
    workflow: Workflow
    machine: Machine
    run: WorkflowRun = field(default_factory=WorkflowRun)

    def job(self, job: Job) -> None:
        needs = {name: self._needed(name) for name in job.needs}
        succeeded = all(one["result"] == "success" for one in needs.values())
        contexts = {**self.machine.contexts, "needs": needs}
        if not _decide(job.condition, _scope(contexts, succeeded=succeeded)):
            self.run.jobs.append(JobRun(job.id, job.name, "skipped"))
            return
        for entry in _matrix(job, _scope(contexts, succeeded=succeeded)):
            self._entry(job, {**contexts, "matrix": entry})

    def _needed(self, name: str) -> dict[str, Any]:
        outputs: dict[str, str] = {}
        for one in self.run.of(name):
            outputs |= one.outputs
        return {"result": self.run.result(name), "outputs": outputs}

    def _entry(self, job: Job, contexts: dict[str, Any]) -> None:
        scope = _scope(contexts, succeeded=True)
        done = JobRun(job.id, str(scope.text(job.name)), runs_on=str(scope.text(job.runs_on)))
        self.run.jobs.append(done)
        variables = _texts(self.workflow.env, scope) | _texts(job.env, scope)
        outputs: dict[str, Any] = {}
        for step in job.steps:
            known = {**contexts, "env": variables, "steps": outputs}
            scope = _scope(known, succeeded=done.result == "success")
            one, exported = self._step(step, job, scope, variables, outputs)
            variables |= exported
            done.steps.append(one)
            if one.result == "failure":
                done.result = "failure"
        if done.result == "success":  # else no job reads them: what needs this one is skipped
            known = {**contexts, "env": variables, "steps": outputs}
            done.outputs = _texts(job.outputs, _scope(known, succeeded=True))

    def _step(
        self,
        step: Step,
        job: Job,
        scope: Scope,
        variables: Mapping[str, str],
        outputs: dict[str, Any],
    ) -> tuple[StepRun, Mapping[str, str]]:
        if not _decide(step.condition, scope):
            return StepRun(step.name, "skipped"), {}
        if step.uses:
            self._use(step)
            return StepRun(step.name, "success"), {}
        if "${{" in str(step.run):
            raise WorkflowError(f"{job.id}: {step.name}: an expression in a script is not run here")
        seconds = 60.0 * float(str(job.timeout))
        ran = self.machine.script(step, {**variables, **_texts(step.env, scope)}, seconds)
        if step.id:
            outputs[step.id] = {"outputs": dict(ran.outputs)}
        return StepRun(step.name, "failure" if ran.status else "success", ran.said), ran.variables

    def _use(self, step: Step) -> None:
        action = str(step.uses).partition("@")[0]
        if action not in _ACTIONS:
            raise WorkflowError(f"the action {action} is not known here")
        getattr(self.machine, _ACTIONS[action])(step.given)


def _scope(contexts: Mapping[str, Any], *, succeeded: bool) -> Scope:
    status: dict[str, Callable[..., Any]] = {
        "success": lambda: succeeded,
        "failure": lambda: not succeeded,
        "always": lambda: True,
        "cancelled": lambda: False,
    }
    return Scope(contexts, {**PURE, **status})


def _decide(condition: object, scope: Scope) -> bool:
    """Return whether a job or step is run; without a word about it, only after success."""
    asks = re.search(rf"\b({'|'.join(_STATUS)})\(", str(condition))
    return (bool(asks) or scope.value("success()")) and scope.condition(condition)


def _matrix(job: Job, scope: Scope) -> list[dict[str, Any]]:
    if unknown := {*job.strategy} - {"matrix", "fail-fast"}:
        raise WorkflowError(f"{job.id}: strategy {unknown} is not known here")
    if not job.strategy:
        return [{}]
    matrix = scope.text(job.strategy["matrix"])
    if not isinstance(matrix, dict) or {*matrix} != {"include"} or not matrix["include"]:
        raise ExpressionError(f"{job.id}: GitHub refuses this matrix, or it is not known: {matrix}")
    return list(matrix["include"])


def _texts(values: Mapping[str, Any], scope: Scope) -> dict[str, str]:
    return {name: as_text(scope.text(value)) for name, value in values.items()}
