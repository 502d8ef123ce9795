"""A job as a manifest: what Kubeflow's operators take, and what the examples are."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.closed_schema import faults, schema_of
from support.project_copy import ROOT
from support.run_words import PROGRAM, PUSHED, ran

DEFINITIONS = {
    kind: yaml.safe_load((ROOT / "tests/data/kubernetes" / f"{kind}s.yaml").read_text())
    for kind in ("mpijob", "tfjob")
}
_MADE = re.compile(r"^\$ (imgbuild run .*) > (examples/kubernetes/\S+)$", re.MULTILINE)


def _manifest(folder: Path, form: str, *words: str) -> Any:
    code, text = ran(folder, PUSHED, "--format", form, *words, *PROGRAM)
    assert code == 0, text
    document = yaml.safe_load(text)
    assert faults(document, schema_of(DEFINITIONS[form], document["apiVersion"])) == []
    return document["spec"]


def _pod(spec: Any, kind: str) -> tuple[Any, Any]:
    """Return a replica's pod, and its one container."""
    replicas = spec.get("mpiReplicaSpecs") or spec["tfReplicaSpecs"]
    pod = replicas[kind]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_the_examples_are_made_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _MADE.findall((ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8"))
    there = {str(path.relative_to(ROOT)) for path in ROOT.glob("examples/kubernetes/*")}
    assert {path for _, path in made} == there != set()
    monkeypatch.chdir(ROOT)
    for line, path in made:
        code, text = ran(ROOT, *shlex.split(line)[2:])
        assert (code, text) == (0, (ROOT / path).read_text(encoding="utf-8")), path


def test_an_mpijob_has_what_the_job_asks_for(tmp_path: Path) -> None:
    options = ("--nodes", "2", "-np", "6", "--time-limit", "1h", "--checkpoints", "kept")
    more = ("--gpus", "all", "--env", "A=$(B) $C $$", "--mount", "data:/a:ro")
    spec = _manifest(tmp_path, "mpijob", *options, *more, "--mount", "data:/b")
    assert spec["runPolicy"]["activeDeadlineSeconds"] == 3600
    assert spec["slotsPerWorker"] == 3
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    for kind in ("Launcher", "Worker"):
        pod, container = _pod(spec, kind)
        assert pod["securityContext"] == {"fsGroup": 1000}
        assert {"name": "A", "value": "$$(B) $$C $$$$"} in container["env"]
        assert [one["name"] for one in pod["volumes"]] == ["code", "kept", "data", "shm"]
        assert pod["volumes"][-1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
        mounts = container["volumeMounts"]
        assert [(one["name"], one["mountPath"], one.get("readOnly", False)) for one in mounts] == [
            *(("code", "/work", True), ("kept", "/model", False)),
            *(("data", "/a", True), ("data", "/b", False), ("shm", "/dev/shm", False)),  # noqa: S108
        ]
    launcher, worker = _pod(spec, "Launcher")[1], _pod(spec, "Worker")[1]
    ranks = "mpirun -np 6 -bind-to none -x MODEL_DIR -x A python train.py"
    assert shlex.join(launcher["args"]) == ranks
    # Without `command`, Kubernetes keeps the entry point, which gives users a name and a home.
    assert not {"command"} & (launcher.keys() | worker.keys())
    assert "resources" not in launcher
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": 3}
    assert {"name": "IMGBUILD_GPU", "value": "off"} in launcher["env"]
    assert {"name": "IMGBUILD_GPU", "value": "require"} in worker["env"]


def test_the_tasks_of_a_tfjob_that_train_have_gpus(tmp_path: Path) -> None:
    for gpus, count in (("2", 2), ("all", 1)):
        spec = _manifest(tmp_path, "tfjob", "--nodes", "3", "--ps", "2", "--gpus", gpus)
        counts = {kind: one["replicas"] for kind, one in spec["tfReplicaSpecs"].items()}
        assert counts == {"Chief": 1, "Worker": 2, "PS": 2}
        for kind in ("Chief", "Worker"):
            assert _pod(spec, kind)[1]["resources"]["limits"] == {"nvidia.com/gpu": count}
            assert {"name": "IMGBUILD_GPU", "value": "require"} in _pod(spec, kind)[1]["env"]
        assert "resources" not in _pod(spec, "PS")[1]
        assert _pod(spec, "PS")[1]["env"] == [{"name": "IMGBUILD_GPU", "value": "off"}]
    assert set(_manifest(tmp_path, "tfjob")["tfReplicaSpecs"]) == {"Chief"}


def test_the_folder_of_the_code_is_one_word_of_the_comment(tmp_path: Path) -> None:
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    line = ran(folder, PUSHED, "--format", "mpijob", *PROGRAM)[1].splitlines()[1]
    assert shlex.split(line)[-1] == f"--from-file={folder}"
