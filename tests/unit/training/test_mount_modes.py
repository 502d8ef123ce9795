"""A mount that is to be read only is so in every format."""

from pathlib import Path

import pytest
import yaml
from run_words import PROGRAM, PUSHED, ran

MOUNTS = ("--mount", "data:/data:ro", "--mount", "out:/out")
WORDS = ("--image", PUSHED, "--checkpoints", "kept", *MOUNTS)


@pytest.mark.parametrize("form", ["mpijob", "tfjob"])
def test_of_a_manifest(tmp_path: Path, form: str) -> None:
    code, text = ran(tmp_path, *WORDS, "--nodes", "2", "--format", form, *PROGRAM)
    assert code == 0, text
    spec = yaml.safe_load(text)["spec"]
    for replica in (spec.get("mpiReplicaSpecs") or spec["tfReplicaSpecs"]).values():
        (container,) = replica["template"]["spec"]["containers"]
        modes = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
        assert [modes[path] for path in ("/work", "/model", "/data", "/out")] == [
            *(True, False, True, False)
        ]
