"""``.ci/login``: the network may fail a few times, a password once; it is never an argument."""

import os
import subprocess
from pathlib import Path

import pytest

from support.project_copy import ROOT

FAKE = r"""#!/bin/sh
printf '%s %s\n' "$*" "$(cat)" >> "$ASKED"
line=$(wc -l < "$ASKED")
sed -n "${line}p" "$ANSWERS" >&2
[ "$(sed -n "${line}p" "$ANSWERS")" = ok ]
"""
RESET = "read: connection reset by peer"
DENIED = "unauthorized: incorrect username or password"


@pytest.mark.parametrize(
    ("answers", "status", "asked"),
    [
        (["ok"], 0, 1),
        ([RESET, RESET, "ok"], 0, 3),
        ([RESET, DENIED, "ok"], 1, 2),
        ([RESET] * 4, 1, 4),
    ],
)
def test_login(tmp_path: Path, answers: list[str], status: int, asked: int) -> None:
    for name, text in (("docker", FAKE), ("sleep", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "answers").write_text("\n".join([*answers, ""]), encoding="utf-8")
    done = subprocess.run(
        [str(ROOT / ".ci" / "login"), "registry.example.org:5000/team/images"],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "ASKED": str(tmp_path / "asked"),
            "ANSWERS": str(tmp_path / "answers"),
            "LOGIN": "ci",
            "PASSWORD": "s3cret",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    wanted = "login --username ci --password-stdin registry.example.org:5000 s3cret"
    assert (tmp_path / "asked").read_text().splitlines() == [wanted] * asked
    assert "s3cret" not in done.stdout + done.stderr
