"""A repository of this project with workflows to execute, and a registry that they publish to.

It is what is committed here with the changes of the work tree, in a repository of its own. What is
built has another name on the engine, so that nothing of a user's is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import requests
from conftest import ROOT

from actions.machine import Machine
from actions.runner import WorkflowRun, run_workflow
from actions.workflow import read_workflow

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from own_registry import OwnRegistry

LOCAL = "imgbuild-workflow/tensorflow"
PUBLISHED, CACHE = "ml/tensorflow", "ml/cache"
USER, PASSWORD = "ci", "s3cret-of-the-ci"
_OWN = re.compile(
    r"GITHUB_|ACTIONS_|RUNNER_|XDG_STATE_HOME|DOCKER_CONFIG|PYTHON|VIRTUAL_ENV|IMGBUILD"
)


@dataclass
class CiProject:
    """A repository ``root``, whose pushes are executed below ``folder``, on one runner.

    ``summaries`` are what the steps of the last push wrote for people.
    """

    root: Path
    folder: Path
    host: str
    registry: OwnRegistry
    selection: str
    runs: int = 0
    summaries: list[str] = field(default_factory=list)

    def commit(self, message: str) -> str:
        """Commit what is in the work tree; return the commit."""
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        return self._git("rev-parse", "HEAD").strip()

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} no longer holds {old!r} once"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def imgbuild(self, *words: str) -> str:
        """Run imgbuild of this very checkout in the repository; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-c", "from imgbuild.cli import main; main()", *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def push(
        self, workflow: str, jobs: Collection[str] = (), *, to: str = "main", **variables: str
    ) -> WorkflowRun:
        """Execute a workflow as a push of the last commit to a branch does; all jobs, or some."""
        self.runs += 1
        place = self.folder / "machine"
        place.mkdir(parents=True, exist_ok=True)
        machine = Machine(
            origin=self.root,
            folder=place,
            environment=self._environment(),
            github={
                "event_name": "push",
                "ref": f"refs/heads/{to}",
                "sha": self._git("rev-parse", "HEAD").strip(),
                "repository": "ml/images",
                "actor": "somebody",
                "token": "a token of GitHub, which nobody here knows",
                "run_number": str(self.runs),
            },
            variables={**self._variables(), **variables},
            secrets={"REGISTRY_PASSWORD": PASSWORD},
            inputs={"refresh": None},
            runner={"environment": "self-hosted"},
        )
        found = read_workflow(self.root / ".github" / "workflows" / workflow)
        run = run_workflow(found, machine, only=jobs)
        self.summaries = machine.summaries
        return run

    def tags(self) -> dict[str, str]:
        """Return the digest of each tag that is published."""
        listed = self._ask("tags/list")
        names = listed.json()["tags"] if listed.ok else []
        return {
            name: self._ask(f"manifests/{name}").headers["Docker-Content-Digest"] for name in names
        }

    def _ask(self, path: str) -> requests.Response:
        kinds = ("vnd.oci.image.manifest.v1", "vnd.docker.distribution.manifest.v2")
        return requests.get(
            f"{self.registry.url}/v2/{PUBLISHED}/{path}",
            auth=(USER, PASSWORD),
            headers={"Accept": ", ".join(f"application/{kind}+json" for kind in kinds)},
            timeout=30,
        )

    def _variables(self) -> dict[str, str]:
        return {
            "REPOSITORY": f"{self.registry.host}/{PUBLISHED}",
            "CACHE": f"{self.registry.host}/{CACHE}",
            "SELECTION": self.selection,
            "REGISTRY_USER": USER,
            "GPU_RUNNER": "",
            # The CPython of the machine that tests may be one that was there.
            "PUSH_OPTIONS": "--allow-skipped gpu_runs --allow-substituted",
        }

    def _environment(self) -> dict[str, str]:
        """Return the machine's own environment, without what a test or a CI around it has set."""
        kept = {name: value for name, value in os.environ.items() if not _OWN.match(name)}
        (self.folder / "docker").mkdir(parents=True, exist_ok=True)
        return {**kept, "DOCKER_HOST": self.host, "DOCKER_CONFIG": str(self.folder / "docker")}

    def _git(self, *words: str) -> str:
        who = ("-c", "user.name=imgbuild", "-c", "user.email=imgbuild@example.org")
        return subprocess.run(
            ["git", *who, *words], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout


def ci_project(folder: Path, host: str, registry: OwnRegistry, selection: str) -> CiProject:
    """Return a repository with one commit; the images have a name of their own."""
    root = folder / "repository"
    root.mkdir()
    for name in _files():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    project = CiProject(root, folder / "ci", host, registry, selection)
    project._git("init", "--quiet", "--initial-branch=main")
    return project


def _files() -> list[str]:
    """Return what is committed here, with the changes of the work tree and what is new in it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
