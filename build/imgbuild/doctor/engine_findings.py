"""The rows about the engine, from what is known of it."""

import os

from imgbuild.doctor.engine_state import EngineState
from imgbuild.doctor.finding import Finding, Status, fine, skipped
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.own_engine import OwnEngine

_UNKNOWN = "unknown until an engine and buildx are there"


def check_engine(state: EngineState, machine: Machine, own: OwnEngine) -> list[Finding]:
    """Return the rows of the engine, of buildx and of BuildKit's features."""
    return [
        _engine(state, machine, named_address(state, own)),
        _buildx(state, machine),
        _features(state, machine, own),
    ]


def named_address(state: EngineState, own: OwnEngine) -> str | None:
    """Return where the user named the engine's address; such an engine is never replaced.

    ``None`` if nobody named one, so that imgbuild is free to start its own.
    """
    if state.resolved and state.host in {None, own.host}:
        return None
    if state.host and os.environ.get("DOCKER_HOST") == state.host:
        return "DOCKER_HOST"
    return "imgbuild.local.yaml or a Docker context"


def _engine(state: EngineState, machine: Machine, named_by: str | None) -> Finding:
    found = state.version
    if found is not None:
        store = "containerd image store" if found.containerd_store else found.storage_driver
        return fine("engine", f"{found.version} at {state.address}, {store}, {found.architecture}")
    if "permission denied" in state.problem.lower():
        mend = 'sudo usermod -aG docker "$USER", then log in again'
    elif named_by:
        mend = f"start that engine, or take its address out of {named_by}"
    else:
        mend = engine_mend(machine)
    return Finding(Status.MISSING, "engine", state.problem, mend)


def engine_mend(machine: Machine) -> str:
    """Return what gives this machine an engine."""
    if machine.apt and machine.family != "other":
        return machine.doctor("--mend")
    return "install Docker Engine 24 or later with its buildx plugin, and start it"


def _buildx(state: EngineState, machine: Machine) -> Finding:
    if state.buildx is not None:
        return fine("buildx", f"{state.buildx.version} ({state.buildx.path})")
    return Finding(Status.MISSING, "buildx", state.buildx_problem, engine_mend(machine))


def _features(state: EngineState, machine: Machine, own: OwnEngine) -> Finding:
    if state.version is None or state.buildx is None:
        return skipped("BuildKit", _UNKNOWN)
    if state.features_problem is None:
        return fine("BuildKit", "a build with every feature that imgbuild uses succeeded")
    mend = machine.doctor("--mend") if state.host == own.host else _upgrade(machine)
    return Finding(Status.MISSING, "BuildKit", state.features_problem, mend)


def _upgrade(machine: Machine) -> str:
    """Return how an engine that cannot do it is upgraded; imgbuild itself never touches it."""
    install = machine.install("docker.io", "docker-buildx")
    return (
        f"if that engine is old, upgrade it: {install} (where from: docs/guide.md); "
        f"or stop it and let imgbuild bring its own: {machine.doctor('--mend')}"
    )
