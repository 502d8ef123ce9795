"""A repository of this project with workflows to execute, and a registry that they publish to.

It is what is committed here with the changes of the work tree, in a repository of its own. What is
built has another name on the engine, so that nothing of a user's is touched.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import requests
from checkout import ROOT
from own_registry import OwnRegistry
from workflow_steps import JobRun, WorkflowMachine

LOCAL = "imgbuild-workflow/tensorflow"
PUBLISHED = "ml/tensorflow"
USER, PASSWORD = "ci", "s3cret-of-the-ci"
_OWN = re.compile(
    r"GITHUB_|ACTIONS_|RUNNER_|XDG_STATE_HOME|DOCKER_CONFIG|PYTHON|VIRTUAL_ENV|IMGBUILD"
)


@dataclass(frozen=True)
class Publication:
    """A run of images.yml: the release, the images of the plan, and its shards."""

    release: str
    planned: list[str]
    shards: list[JobRun]

    @property
    def printed(self) -> str:
        """Everything that the shards printed."""
        return "\n".join(text for shard in self.shards for text in shard.printed.values())


@dataclass
class CiProject:
    """A repository ``root``, whose workflows run below ``folder``."""

    root: Path
    folder: Path
    host: str
    registry: OwnRegistry
    selection: str
    runs: int = 0

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

    def run(self, workflow: str, job: str, **values: str) -> JobRun:
        """Run a job for the last commit; ``values`` name expressions, ``_`` for a dot."""
        self.folder.mkdir(parents=True, exist_ok=True)
        machine = WorkflowMachine(self.root, self.folder, self._environment())
        known = {**self._values(), **{name.replace("_", "."): v for name, v in values.items()}}
        return machine.run(workflow, job, known, {"GITHUB_RUN_NUMBER": str(self.runs)})

    def publish(self) -> Publication:
        """Run images.yml: the plan, then a job for each shard."""
        self.runs += 1
        plan = self.run("images.yml", "plan")
        assert plan.succeeded, plan.printed
        release = plan.outputs["release"]
        entries = json.loads(plan.outputs["shards"])["include"]
        shards = [
            self.run(
                "images.yml",
                "publish",
                matrix_names=entry["names"],
                needs_plan_outputs_release=release,
            )
            for entry in entries
        ]
        planned = sorted(name for entry in entries for name in entry["images"].split())
        return Publication(release, planned, shards)

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

    def _values(self) -> dict[str, str]:
        """Return the value of each expression of the workflows, by its text."""
        return {
            "vars.REPOSITORY || format('ghcr.io/{0}/tensorflow', github.repository)": (
                f"{self.registry.host}/{PUBLISHED}"
            ),
            "vars.SELECTION || '--all'": self.selection,
            "!(vars.GPU_RUNNER || inputs.allow-skipped-gpu) && '--without-gpu' || ''": (
                "--without-gpu"
            ),
            "vars.REGISTRY_USER || github.actor": USER,
            "secrets.REGISTRY_PASSWORD || github.token": PASSWORD,
            "inputs.refresh && '--refresh' || ''": "",
            # The CPython of the machine that tests may be one that was there.
            "vars.PUSH_OPTIONS": "--allow-substituted",
            "inputs.allow-skipped-gpu && '--allow-skipped gpu_runs' || ''": (
                "--allow-skipped gpu_runs"
            ),
            "runner.environment == 'github-hosted'": "false",
            "always() && runner.environment == 'self-hosted'": "true",
            "env.NAMES != ''": "true",
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
