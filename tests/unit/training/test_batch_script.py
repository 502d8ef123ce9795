"""A job as a batch script of Slurm: run by bash, with players for srun and Apptainer."""

import getpass
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from support.run_words import PROGRAM, PUSHED, ran

#: Of the user, who may have no name in the image.
NAMED = {f"APPTAINERENV_{name}": getpass.getuser() for name in ("USER", "LOGNAME")}
#: Says its words and Apptainer's variables; `srun` starts what is given to it.
PLAYER = """#!{python}
import json, os, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
if name == "srun":
    assert words.pop(0) == "--mpi=pmix"
    os.execvp(words[0], words)
variables = {{k: v for k, v in os.environ.items() if k.startswith("APPTAINERENV_")}}
print(json.dumps([words, variables]))
sys.exit(7)
"""


def _ran(folder: Path, *words: str) -> tuple[str, list[str], dict[str, str]]:
    """Run the script of a job; return it, the words that Apptainer got, and its variables."""
    code, text = ran(folder, PUSHED, "--format", "slurm", *words)
    assert code == 0, text
    for name in ("srun", "apptainer"):
        path = folder / name
        path.write_text(PLAYER.format(python=sys.executable), encoding="utf-8")
        path.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        ["bash"], input=text, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 7, result.stderr
    return text, *json.loads(result.stdout)


def _options(text: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)


def test_ranks_on_one_node_are_started_by_the_image(tmp_path: Path) -> None:
    text, words, variables = _ran(tmp_path, "-np", "2", "--time-limit", "1h30m5s", *PROGRAM)
    allocation = ["--job-name=train", "--nodes=1", "--ntasks-per-node=2", "--time=92"]
    assert _options(text) == allocation
    assert f"apptainer build train.sif docker://{PUSHED}\n" in text
    assert words == [
        *("run", "--bind", f"{tmp_path}:/work", "--pwd", "/work", "train.sif"),
        *("timeout", "--foreground", "--signal=USR1", "--kill-after=30", "5405"),
        *("mpirun", "-np", "2", "--oversubscribe", "-bind-to", "none", "python", "train.py"),
    ]
    assert variables == {**NAMED, "APPTAINERENV_PYTHONNOUSERSITE": "1"}


def test_ranks_on_several_nodes_are_started_by_slurm(tmp_path: Path) -> None:
    kept = tmp_path / "it's kept"
    kept.mkdir()
    nodes = ("--nodes", "2", "-np", "6", "--gpus", "all", "--time-limit", "1h")
    options = ("--checkpoints", str(kept), "--env", "A=it's $5, B=6", "--env", "TOKEN")
    named = ("--env", "USER=me")
    program = ("--", "python", "train.py", "$HOME", "a b", "`id`", "")
    text, words, variables = _ran(tmp_path, *nodes, *options, *named, *program)
    allocation = ["--job-name=train", "--nodes=2", "--ntasks-per-node=3", "--gpus-per-node=3"]
    assert _options(text) == [*allocation, "--time=60"]
    assert words == [
        *("run", "--nv", "--bind", f"{tmp_path}:/work", "--bind", f"{kept}:/model"),
        *("--pwd", "/work", "train.sif", *program[1:]),
    ]
    assert variables == {
        **NAMED,
        "APPTAINERENV_USER": "me",
        "APPTAINERENV_PYTHONNOUSERSITE": "1",
        "APPTAINERENV_MODEL_DIR": "/model",
        "APPTAINERENV_IMGBUILD_GPU": "require",
        "APPTAINERENV_A": "it's $5, B=6",
    }
