"""Check hostile repositories: no traceback, nothing runs, nothing is written outside them.

Each is read in a process of its own, with a limit on its memory.
"""

import json
import multiprocessing
import os
import resource
import time
import traceback
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from imgbuild.adopt.adopt import make_extension, program_command, run_command
from imgbuild.adopt.adoption import FILE, LOCK, read_adoption, write_adoption
from imgbuild.adopt.decide import AdoptOptions, DecidedProgram, decide, recall
from imgbuild.adopt.repository import open_repository
from imgbuild.core.errors import ImgbuildError, InputError
from imgbuild.core.files import remove_tree
from imgbuild.core.project import Project
from imgbuild.core.text import printable
from imgbuild.locks.resolver import index_requirement
from imgbuild.matrix.model import Matrix
from support import hostile_repositories
from support.project_copy import NO_ENGINE, ROOT, run_main

#: Limits of a process: bytes of address space, bytes of real memory, seconds of the whole.
SPACE, MEMORY, SECONDS = 2 << 30, 3 << 29, 60
TODAY = date(2026, 11, 1)


def check_harmless(case: str, tmp_path: Path, project: Project, matrix: Matrix) -> None:
    """Adopt one of the hostile repositories; fail if it does any harm."""
    canary, bystander = tmp_path / "canary", tmp_path / "bystander"
    bystander.write_text("untouched")
    folder = hostile_repositories.build(case, tmp_path, canary)
    before = {*tmp_path.iterdir(), tmp_path / "state"}
    files = {path.name for path in folder.iterdir()}
    began = time.monotonic()
    result = _in_child(folder, tmp_path / "state", project, matrix)
    left = {path.name for path in folder.iterdir()} - files
    remove_tree(folder)  # pytest cannot remove very deep folders
    assert time.monotonic() - began < SECONDS
    assert result["error"] == ""
    assert result["memory"] < MEMORY
    assert not canary.exists()
    assert bystander.read_text() == "untouched"
    assert {*tmp_path.iterdir()} <= before
    assert left <= {FILE}
    assert result["code"] in {1, 2, 3}, result
    assert "imgbuild itself failed" not in result["stderr"], result["stderr"]
    assert "Traceback" not in result["stderr"]
    message = result["stderr"].removeprefix("imgbuild: ").strip()
    assert message
    assert len(message) < 20_000
    assert "\n\n" not in message
    for text in (result["stderr"], result["stdout"]):
        assert text == printable(text)
    if result["stdout"]:
        assert json.loads(result["stdout"])["refused"]


def _in_child(folder: Path, state: Path, project: Project, matrix: Matrix) -> dict[str, Any]:
    """Adopt a repository in a process of its own, and return the result."""
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=_examine, args=(writing, folder, state, project, matrix))
    process.start()
    writing.close()
    result: dict[str, Any] = {"error": "no answer"}
    with suppress(EOFError):
        if reading.poll(SECONDS):
            result = reading.recv()
    process.kill()
    process.join()
    return result


def _examine(pipe: Any, folder: Path, state: Path, project: Project, matrix: Matrix) -> None:
    os.environ["XDG_STATE_HOME"] = str(state)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, hard))
    began = time.monotonic()
    words = ("adopt", ".", "--json", "--project", str(ROOT))
    ran = run_main(folder, *words, env=NO_ENGINE)
    result = {"code": ran.returncode, "stdout": ran.stdout, "stderr": ran.stderr, "error": ""}
    result["cli"] = time.monotonic() - began
    try:
        _decide_twice(folder, project, matrix)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the test reports it
        result["error"] = "".join(traceback.format_exception(error))[-3000:]
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result["memory"] = max(each.ru_maxrss for each in usage) * 1024
    pipe.send(result)


def _decide_twice(folder: Path, project: Project, matrix: Matrix) -> None:
    """Decide, write the decisions, read them again, and compare."""
    repository = open_repository(folder)
    with suppress(ImgbuildError):
        if saved := read_adoption(repository.folder):
            _check_program(recall(repository, project, matrix, saved, AdoptOptions()))
    try:
        program = decide(repository, project, matrix, AdoptOptions(), TODAY)
    except InputError:
        return
    _check_program(program)
    try:
        path = write_adoption(repository.folder, program.adoption, program.decisions)
    except InputError:
        assert os.path.lexists(folder / FILE), "it is a link, a device, a folder, or large"
        return
    text = path.read_text(encoding="utf-8")
    assert text.replace("\n", " ") == printable(text).replace("\n", " ")
    saved = read_adoption(repository.folder)
    assert saved == program.adoption
    again = recall(open_repository(folder), project, matrix, saved, AdoptOptions())
    assert again.adoption == program.adoption
    _check_program(again)


def _check_program(program: DecidedProgram) -> None:
    """Check that decisions name packages and files, and nothing else."""
    adoption, request = program.adoption, program.request
    for text in (*request.requirements, *request.optional, *request.constraints):
        assert index_requirement(text)
        assert "\n" not in text
    for text in request.overrides:
        assert all(index_requirement(part) for part in text.split("=", 1))
    assert adoption.entry in program.repository.files
    assert program_command(adoption)[1][:1] != "-" or program_command(adoption)[1] == "-m"
    assert "\n" not in run_command(program)
    with suppress(InputError):
        make_extension(program)
    assert LOCK not in adoption.model_dump_json()
    for decision in program.decisions:
        for text in (decision.subject, decision.value, decision.reason, *decision.against):
            assert text == printable(text), decision
            assert len(text) < 3000
