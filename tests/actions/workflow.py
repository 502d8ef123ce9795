"""A workflow file as values. A key that is not known here is an error: it would be ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

#: GitHub reads YAML 1.2, where ``on`` is a text; PyYAML reads 1.1, where it is true.
_ON = True
_WORKFLOW = {"name", _ON, "permissions", "concurrency", "defaults", "env", "jobs"}
_JOB = {
    *("name", "runs-on", "needs", "if", "permissions", "timeout-minutes", "strategy"),
    *("env", "outputs", "steps"),
}
_STEP = {"name", "id", "if", "uses", "with", "run", "env"}


class WorkflowError(Exception):
    """A workflow that is not understood here, and where."""


@dataclass(frozen=True)
class Step:
    """A step: either ``uses`` names an action, or ``run`` is a script for bash."""

    name: str
    id: str | None
    condition: object
    uses: str | None
    given: Mapping[str, Any]
    run: str | None
    env: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """A job. ``timeout`` in minutes; ``permissions`` is None where nothing is said of them."""

    id: str
    name: str
    runs_on: object
    needs: tuple[str, ...]
    condition: object
    permissions: Mapping[str, str] | str | None
    timeout: object
    strategy: Mapping[str, Any]
    env: Mapping[str, Any]
    outputs: Mapping[str, Any]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Workflow:
    """A workflow; ``triggers`` are the events that start it."""

    name: str
    triggers: Mapping[str, Any]
    permissions: Mapping[str, str] | str | None
    concurrency: Mapping[str, Any] | None
    defaults: Mapping[str, Any]
    env: Mapping[str, Any]
    jobs: Mapping[str, Job]


def read_workflow(path: Path) -> Workflow:
    """Return the workflow of a file.

    Raises:
        WorkflowError: a key is not known here, or something is missing.

    """
    return workflow_of(path.read_text(encoding="utf-8"), path.name)


def workflow_of(text: str, name: str) -> Workflow:
    """Return the workflow that a text is; ``name`` is for messages."""
    document = yaml.safe_load(text)
    _check(document, _WORKFLOW, name)
    jobs = document.get("jobs") or {}
    return Workflow(
        str(document.get("name", name)),
        _triggers(document.get(_ON)),
        document.get("permissions"),
        document.get("concurrency"),
        document.get("defaults") or {},
        document.get("env") or {},
        {key: _job(key, job, f"{name}: job {key}") for key, job in jobs.items()},
    )


def _triggers(on: Any) -> Mapping[str, Any]:
    if isinstance(on, str):
        return {on: None}
    return dict.fromkeys(on) if isinstance(on, list) else dict(on)


def _job(key: str, job: Any, where: str) -> Job:
    _check(job, _JOB, where)
    needs = job.get("needs") or ()
    return Job(
        key,
        str(job.get("name", key)),
        job.get("runs-on"),
        (needs,) if isinstance(needs, str) else tuple(needs),
        job.get("if", "success()"),
        job.get("permissions"),
        job.get("timeout-minutes"),
        job.get("strategy") or {},
        job.get("env") or {},
        job.get("outputs") or {},
        tuple(_step(one, f"{where}: step {n}") for n, one in enumerate(job.get("steps") or (), 1)),
    )


def _step(step: Any, where: str) -> Step:
    _check(step, _STEP, where)
    if ("uses" in step) == ("run" in step):
        raise WorkflowError(f"{where} must have either `uses` or `run`")
    return Step(
        str(step.get("name") or step.get("uses") or step["run"]),
        step.get("id"),
        step.get("if", "success()"),
        step.get("uses"),
        step.get("with") or {},
        str(step["run"]) if "run" in step else None,
        step.get("env") or {},
    )


def _check(document: Any, known: set[Any], where: str) -> None:
    if not isinstance(document, Mapping):
        raise WorkflowError(f"{where} is no mapping")
    for key in document:
        if key not in known:
            raise WorkflowError(f"{where}: the key {key!r} is not known here")
