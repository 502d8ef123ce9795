"""Run the `run:` steps of a workflow's job on this machine, in order, with GitHub's shell.

The test gives the value of each expression by its text; `.venv`, artifacts and caches stay between
jobs.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.workflow_files import read_workflow

#: Like the real one, it takes away the variables of the workflow that it is not told to keep.
SUDO = """\
#!/bin/sh
kept=
case $1 in --preserve-env=*) kept=,${1#*=}, ; shift ;; esac
for name in $WORKFLOW_NAMES; do
    case $kept in *",$name,"*) ;; *) unset "$name" ;; esac
done
exec "$@"
"""
FILES = ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
#: The expression that tells the jobs of a matrix apart.
INDEX = "strategy.job-index"
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class JobRun:
    """The result of a job; its steps' results and outputs are by name."""

    succeeded: bool = True
    results: dict[str, str] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""


@dataclass(frozen=True)
class WorkflowMachine:
    """A machine that runs jobs in a clone of ``origin`` below ``folder``."""

    origin: Path
    folder: Path
    environment: Mapping[str, str]

    def run(
        self, workflow: str, job: str, values: Mapping[str, str], variables: Mapping[str, str]
    ) -> JobRun:
        """Run one job of a workflow; ``values`` are those of expressions, by their text."""
        document = read_workflow(self.origin / ".github" / "workflows" / workflow)
        description = document["jobs"][job]
        known, run = dict(values), JobRun()
        env = dict(variables)
        for section in (document.get("env", {}), description.get("env", {})):
            env |= _texts(section, known)
        for step in description["steps"]:
            self._step(step, known, env, run)
        run.outputs = _texts(description.get("outputs", {}), known) if run.succeeded else {}
        return run

    def _step(
        self, step: Mapping[str, Any], known: dict[str, str], env: dict[str, str], run: JobRun
    ) -> None:
        name, condition = step.get("name", step.get("uses", "")), step.get("if", "success()")
        always = condition.startswith("always()")
        holds = condition in {"success()", "always()"} or known[condition] == "true"
        if not holds or not (run.succeeded or always):
            run.results[name] = "skipped"
            return
        if "uses" in step:
            run.succeeded = self._used(step["uses"], step["with"], known) and run.succeeded
            return
        told = {**env, **_texts(step.get("env", {}), known)}
        code, run.printed[name] = self._script(step["run"], told)
        run.results[name] = "failure" if code else "success"
        run.succeeded = run.succeeded and code == 0
        run.summary += (self.folder / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
        env |= _lines(self.folder / "GITHUB_ENV")
        for key, value in _lines(self.folder / "GITHUB_OUTPUT").items():
            known[f"steps.{step['id']}.outputs.{key}"] = value

    def _used(self, action: str, given: Mapping[str, str], known: Mapping[str, str]) -> bool:
        """Do what an action does; an artifact that is missing is a failure, a cache is not."""
        if action.startswith("actions/checkout@"):
            self._checkout(int(given.get("fetch-depth", "1")))
            return True
        name = given.get("name", given.get("pattern", given.get("key", "")))
        name = name.replace(f"${{{{ {INDEX} }}}}", known.get(INDEX, "")).partition("${{")[0]
        kept, place = self.folder / "kept", self.folder / "clone" / given["path"]
        kept.mkdir(exist_ok=True)
        writes = "/upload-" in action or "/save@" in action
        target = kept / name if writes else place
        for source in [place] if writes else sorted(kept.glob(name)):
            if source.exists():
                shutil.copytree(source, target, dirs_exist_ok=True)
        return target.exists() or "actions/cache/" in action

    def _checkout(self, depth: int) -> None:
        clone = self.folder / "clone"
        clone.mkdir(parents=True, exist_ok=True)
        for leftover in (self.folder / "temp", self.folder / "state"):
            shutil.rmtree(leftover, ignore_errors=True)
        for words in (
            ("init", "--quiet"),
            ("fetch", "--quiet", f"--depth={depth}", self.origin.as_uri(), "HEAD"),
            ("checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"),
            ("clean", "-ffdxq", "--exclude=/.venv", "--exclude=*.egg-info"),
        ):
            subprocess.run(["git", *words], cwd=clone, check=True, capture_output=True)

    def _script(self, script: str, env: Mapping[str, str]) -> tuple[int, str]:
        files = {name: str(self.folder / name) for name in FILES}
        for name in FILES:
            (self.folder / name).write_text("", encoding="utf-8")
        for name in ("bin", "temp"):
            (self.folder / name).mkdir(exist_ok=True)
        sudo = self.folder / "bin" / "sudo"
        sudo.write_text(SUDO, encoding="utf-8")
        sudo.chmod(0o755)
        temp = {"RUNNER_TEMP": str(self.folder / "temp")}
        told = {**env, **files, **temp, "GITHUB_ACTIONS": "true", "CI": "true"}
        path = f"{sudo.parent}{os.pathsep}{self.environment['PATH']}"
        own = {**self.environment, "PATH": path, "XDG_STATE_HOME": str(self.folder / "state")}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder / "clone",
            env={**own, **told, "WORKFLOW_NAMES": " ".join(told)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1800,
        )
        return done.returncode, done.stdout


def _texts(values: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    return {
        name: _EXPRESSION.sub(lambda found: known[found[1]], text) for name, text in values.items()
    }


def _lines(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)
