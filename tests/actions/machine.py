"""Where a workflow runs: a clone, an environment, and what GitHub would tell it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actions.workflow import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actions.workflow import Step

#: As the real one, it gives the command no variable of the workflow but those it is told to; the
#: user is root already.
_SUDO = """\
#!/bin/sh
kept=
case $1 in --preserve-env=*) kept=,${1#*=}, ; shift ;; esac
for name in $ACTIONS_NAMES; do
    case $kept in *",$name,"*) ;; *) unset "$name" ;; esac
done
exec "$@"
"""


@dataclass(frozen=True)
class Ran:
    """What one script did: its exit status, all it printed, its outputs and variables."""

    status: int
    said: str
    outputs: Mapping[str, str]
    variables: Mapping[str, str]


@dataclass
class Machine:
    """A runner of workflows that works in the folder ``clone``.

    ``origin`` is the repository that is cloned, ``environment`` what the machine's user has set.
    The contexts are the ones of GitHub; a name that is asked for and not there is an error.
    ``summaries`` grows with what the steps write for people.
    """

    origin: Path
    folder: Path
    environment: Mapping[str, str]
    github: Mapping[str, Any]
    variables: Mapping[str, str]
    secrets: Mapping[str, str]
    inputs: Mapping[str, Any]
    runner: Mapping[str, str]
    summaries: list[str] = field(default_factory=list)

    @property
    def clone(self) -> Path:
        return self.folder / "clone"

    @property
    def temp(self) -> Path:
        """The folder that is empty at the beginning of each job."""
        return self.folder / "temp"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def contexts(self) -> dict[str, Any]:
        return {
            "github": dict(self.github),
            "vars": dict(self.variables),
            "secrets": dict(self.secrets),
            "inputs": dict(self.inputs),
            "runner": dict(self.runner),
        }

    def checkout(self, given: Mapping[str, Any]) -> None:
        """Do what actions/checkout does on a runner that is used again, but for ``.venv``.

        That would be made anew in every job, which takes a minute and proves nothing more. What
        imgbuild remembers of earlier jobs (reports, logs) is gone, as on a machine of GitHub's.
        """
        for folder in (self.state, self.temp):
            shutil.rmtree(folder, ignore_errors=True)
        if unknown := {*given} - {"persist-credentials", "fetch-depth"}:
            raise WorkflowError(f"actions/checkout is given {unknown}, which is not known here")
        if not (self.clone / ".git").exists():
            _git(self.folder, "init", "--quiet", str(self.clone))
        depth = int(given.get("fetch-depth", 1))
        only = (f"--depth={depth}",) if depth else ()
        sha = str(self.github["sha"])
        _git(self.clone, "fetch", "--quiet", *only, self.origin.as_uri(), sha)
        _git(self.clone, "checkout", "--quiet", "--force", "--detach", sha)
        _git(self.clone, "clean", "-ffdxq", "--exclude=/.venv", "--exclude=*.egg-info")

    def script(self, step: Step, variables: Mapping[str, str], seconds: float) -> Ran:
        """Run a script as GitHub does for ``shell: bash``, in the clone."""
        self.temp.mkdir(exist_ok=True)
        files = {name: self._new_file(name) for name in ("GITHUB_OUTPUT", "GITHUB_ENV")}
        summary = self._new_file("GITHUB_STEP_SUMMARY")
        script = self._new_file("script")
        script.write_text(str(step.run), encoding="utf-8")
        told = {**variables, **self._told(), **{name: str(path) for name, path in files.items()}}
        told["GITHUB_STEP_SUMMARY"] = str(summary)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.clone,
            env={**self._own(), **told, "ACTIONS_NAMES": " ".join(told)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
        )
        self.summaries.append(summary.read_text(encoding="utf-8"))
        outputs, exported = (_assignments(path) for path in files.values())
        return Ran(done.returncode, done.stdout, outputs, exported)

    def _told(self) -> dict[str, str]:
        """Return the variables that GitHub sets, as far as these workflows may use them."""
        told = {f"GITHUB_{name.upper()}": str(value) for name, value in self.github.items()}
        told.pop("GITHUB_TOKEN", None)  # GitHub gives it to those who ask for it only
        return {**told, "GITHUB_ACTIONS": "true", "CI": "true", "RUNNER_TEMP": str(self.temp)}

    def _own(self) -> dict[str, str]:
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "sudo").write_text(_SUDO, encoding="utf-8")
        (programs / "sudo").chmod(0o755)
        path = f"{programs}{os.pathsep}{self.environment['PATH']}"
        return {**self.environment, "PATH": path, "XDG_STATE_HOME": str(self.state)}

    def _new_file(self, name: str) -> Path:
        path = self.folder / name
        path.write_text("", encoding="utf-8")
        return path


def _assignments(path: Path) -> dict[str, str]:
    """Return the ``NAME=value`` lines of a file that a script wrote for GitHub."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, sign, value = line.partition("=")
        if not sign or "<<" in name:
            raise WorkflowError(f"not understood in {path.name}: {line!r}")
        found[name] = value
    return found


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
