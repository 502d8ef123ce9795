"""The gate of ci.yml, by its own script: only success opens it."""

import subprocess

import pytest
from conftest import ROOT

from actions.expression import PURE, Scope
from actions.workflow import Job, read_workflow

CI = read_workflow(ROOT / ".github" / "workflows" / "ci.yml")


def _passes(job: Job, results: dict[str, str]) -> bool:
    """Run the gate's script with the results of the other jobs."""
    needs = {name: {"result": result, "outputs": {}} for name, result in results.items()}
    said = Scope({"needs": needs}, PURE).text(job.env["RESULTS"])
    (step,) = job.steps
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", str(step.run)],
        env={"RESULTS": said},
        check=False,
        capture_output=True,
    )
    return done.returncode == 0


def test_the_gate_is_open_where_all_succeeded() -> None:
    assert _passes(CI.jobs["gate"], dict.fromkeys(CI.jobs["gate"].needs, "success"))


@pytest.mark.parametrize("result", ["failure", "cancelled", "skipped"])
@pytest.mark.parametrize("job", CI.jobs["gate"].needs)
def test_the_gate_is_shut_by_each_job_that_did_not(job: str, result: str) -> None:
    gate = CI.jobs["gate"]
    assert not _passes(gate, {**dict.fromkeys(gate.needs, "success"), job: result})
