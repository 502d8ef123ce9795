"""GitHub's workflows as documents, with the steps of this repository's own actions in them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")


def read_workflow(path: Path) -> dict[str, Any]:
    """Return a workflow; where a job uses an action by path, it has the action's steps."""
    document: dict[str, Any] = read_file(path)
    root = path.parents[2]
    for job in document["jobs"].values():
        job["steps"] = [own for step in job["steps"] for own in _steps(step, root)]
    return document


def read_file(path: Path) -> Any:
    """Return a YAML file whose values are all texts, since `on` is a word."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506


def _steps(step: Mapping[str, Any], root: Path) -> list[dict[str, Any]]:
    name = step.get("uses", "")
    if not name.startswith("$/"):  # of this repository, at the workflow's commit
        return [dict(step)]
    action = read_file(root / name.removeprefix("$/") / "action.yml")
    inputs = {name: one.get("default") for name, one in action["inputs"].items()}
    given = {**inputs, **step.get("with", {})}
    if None in given.values() or given.keys() != inputs.keys():
        raise AssertionError(f"{name} does not get its inputs: {given}")
    text = _INPUT.sub(
        lambda found: json.dumps(given[found[1]])[1:-1], json.dumps(action["runs"]["steps"])
    )
    found = json.loads(text)
    assert all(own.pop("shell") == "bash" for own in found)
    return list(found)
