"""The answers of ``imgbuild adopt`` that need no engine."""

import json
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from support.project_copy import NO_ENGINE, ROOT, invoke


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ('import tensorflow\nprint "epoch", 1\n', "python2"),
        ("import torch\ntorch.zeros(1)\n", "no-tensorflow"),
        ("import tensorflow as tf\ntf.pack([])\ntf.unpack([])\ntf.sub(1, 2)\n", "tensorflow0"),
    ],
)
def test_json_says_why_a_repository_is_refused(tmp_path: Path, code: str, kind: str) -> None:
    (tmp_path / "main.py").write_text(code)
    words = ("adopt", str(tmp_path), "--json", "--project", str(ROOT))
    result = invoke(*words, env=NO_ENGINE)
    answer = json.loads(result.stdout)
    assert (answer["refused"], answer["outcome"]) == (kind, None)
    assert isinstance(result.exception, InputError)
    assert answer["reason"] == str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


@pytest.mark.parametrize(
    ("platform", "reason"),
    [
        ("linux/arm64", "No image for linux/arm64 has TensorFlow 1"),
        ("linux/riscv64", "--platform linux/riscv64: use"),
        ("all", "--platform all: use linux/amd64 or"),
    ],
)
def test_platform_without_an_image(tmp_path: Path, platform: str, reason: str) -> None:
    (tmp_path / "main.py").write_text("import tensorflow as tf\ntf.contrib.layers\n")
    words = ("adopt", str(tmp_path), "--platform", platform, "--project", str(ROOT))
    result = invoke(*words, env=NO_ENGINE)
    assert isinstance(result.exception, InputError)
    assert reason in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


def test_json_is_not_printed_for_a_wrong_option(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import tensorflow\n")
    words = ("adopt", str(tmp_path), "--json", "--entry", "none.py", "--project", str(ROOT))
    result = invoke(*words, env=NO_ENGINE)
    assert isinstance(result.exception, InputError)
    assert "none.py" in str(result.exception)
    assert result.stdout == ""
