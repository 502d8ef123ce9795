"""``imgbuild doctor``: is this machine able to build, and what mends it if not."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli.options import JsonOption, ProjectOption, open_project
from imgbuild.cli.telling import say
from imgbuild.errors import InputError, MachineError

if TYPE_CHECKING:
    from imgbuild.doctor.diagnosis import Diagnosis, Doctor
    from imgbuild.project import Project
    from imgbuild.settings import Settings


def doctor(
    write: Annotated[
        bool, typer.Option("--write", help="Record the choice of inputs in imgbuild.local.yaml.")
    ] = False,
    mend: Annotated[
        bool,
        typer.Option(
            "--mend", help="Install what is missing and start an engine (root on Debian or Ubuntu)."
        ),
    ] = False,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop", help="Stop the engine that --mend started, whoever uses it, and no other."
        ),
    ] = False,
    as_json: JsonOption = False,
    project: ProjectOption = None,
) -> None:
    """Say whether this machine can build, what is missing, and the command that mends it."""
    if stop:
        _stop(alone=not (write or mend or as_json))
        return
    opened = open_project(project)
    looked = _diagnose(opened, mend=mend, writing=write)
    _print(looked, as_json=as_json)
    if write:
        _write(opened, looked.choice)
    _conclude(looked)


def _stop(*, alone: bool) -> None:
    from imgbuild.doctor.engine_process import stop
    from imgbuild.doctor.own_engine import OwnEngine

    if not alone:
        raise InputError("--stop stands alone; it neither looks nor writes.")
    stopped = stop(OwnEngine())
    typer.echo("Stopped imgbuild's own engine." if stopped else "imgbuild's own engine is not up.")


def _write(opened: "Project", choice: "Settings") -> None:
    from imgbuild.doctor.record import write_settings

    changed = write_settings(choice, opened.settings)
    say(f"{opened.settings}: {'written' if changed else 'unchanged; it says this already'}.")


def _diagnose(opened: "Project", *, mend: bool, writing: bool) -> "Diagnosis":
    from imgbuild.doctor.diagnosis import Doctor
    from imgbuild.doctor.machine import read_machine
    from imgbuild.doctor.own_engine import OwnEngine
    from imgbuild.doctor.programs import RealPrograms
    from imgbuild.matrix.load import load_matrix
    from imgbuild.plan.inputs import check_settings
    from imgbuild.settings import load_settings

    matrix = load_matrix(opened.matrix)
    check_settings(load_settings(opened.settings), matrix)
    doctor = Doctor(matrix, read_machine(), RealPrograms(), OwnEngine())
    looked = doctor.diagnose(load_settings(opened.settings), writing=writing)
    # The second round is for an installed engine that turned out too old once it ran.
    for _ in range(2 if mend else 0):
        if not _mend(opened, doctor, looked):
            break
        looked = doctor.diagnose(load_settings(opened.settings), writing=writing)
    return looked


def _mend(opened: "Project", doctor: "Doctor", looked: "Diagnosis") -> bool:
    """Mend what was found; return whether anything changed."""
    from imgbuild.doctor.mend import Mender
    from imgbuild.doctor.record import write_settings
    from imgbuild.doctor.shell import Shell
    from imgbuild.settings import load_settings

    done = Mender(doctor.machine, Shell(doctor.programs, say), doctor.own).mend(looked)
    if done.host:
        # Without it builds would not find the engine, so it is recorded with or without --write.
        settings = load_settings(opened.settings)
        engine = settings.engine.model_copy(update={"host": done.host})
        write_settings(settings.model_copy(update={"engine": engine}), opened.settings)
        say(f"{opened.settings}: engine.host is {done.host}.")
    return done.anything


def _print(looked: "Diagnosis", *, as_json: bool) -> None:
    if as_json:
        choice = looked.choice.model_dump(mode="json", by_alias=True, exclude_none=True)
        rows = [row.as_json() for row in looked.findings]
        typer.echo(json.dumps({"able": looked.able, "findings": rows, "choice": choice}, indent=2))
        return
    from rich.console import Console

    from imgbuild.doctor.show import show

    show(looked.findings, Console())


def _conclude(looked: "Diagnosis") -> None:
    if looked.missing:
        names = ", ".join(row.what for row in looked.missing)
        raise MachineError(f"this machine cannot build yet: {names}. What mends it is said above.")
