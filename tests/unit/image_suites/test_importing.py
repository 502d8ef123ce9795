"""Which modules of a package the suite `imports` imports, and what it says of those that fail."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.project_copy import PROGRAMS


def _install(folder: Path, name: str, **files: str) -> None:
    """Install a distribution; a double underscore in a keyword is a folder."""
    record = folder / f"{name}-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    paths = []
    for key, text in files.items():
        path = key.replace("__in__", "/").replace("__dot__", ".").replace("__up__", "../")
        paths.append(f"{path},sha256=x,1")
        if not path.startswith("../"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    record.write_text("\n".join([*paths, f"{record.parent.name}/RECORD,,", ""]))


def _outcome(folder: Path, name: str) -> Any:
    program = PROGRAMS / "import_packages.py"
    ran = subprocess.run(
        [sys.executable, str(program), name],
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)[name]


FAILS = "raise ValueError('two\\nlines')\n"


@pytest.mark.parametrize(
    ("files", "module", "error"),
    [
        ({"own_code__in____init____dot__py": ""}, "own_code", ""),
        ({"own_code__dot__py": FAILS}, "own_code", "ValueError: two lines"),
        ({"own_code__dot__py": "import no_such_one"}, "own_code", "No module named 'no_such_one'"),
        ({"own_code__dot__py": "import os\nos.abort()"}, "own_code", "signal 6 ended it"),
        # The module with its name decides, else any of them.
        ({"own_code__dot__py": FAILS, "fine__dot__py": ""}, "own_code", "ValueError"),
        ({"bad__dot__py": FAILS, "fine__dot__py": ""}, "fine", ""),
        ({"bad__dot__py": FAILS, "worse__in____init____dot__py": FAILS}, "bad", "ValueError"),
        # A namespace has no module of its own.
        ({"big__in__own__in____init____dot__py": FAILS}, "big.own", "ValueError"),
        # Tests, private modules, type stubs and scripts do not count.
        ({"tests__in____init____dot__py": "", "bad__dot__py": FAILS}, "bad", "ValueError"),
        ({"_bad__dot__py": FAILS}, "", ""),
        ({"own_code-stubs__in____init____dot__pyi": ""}, "", ""),
        ({"__up__bin__in__tool__dot__py": FAILS}, "", ""),
    ],
)
def test_a_top_module_is_imported(
    tmp_path: Path, files: dict[str, str], module: str, error: str
) -> None:
    _install(tmp_path, "own_code", **files)
    found = _outcome(tmp_path, "own-code")
    assert (found["module"], found["late"]) == (module, False)
    assert error in found["error"]
    assert bool(found["error"]) is bool(error)
