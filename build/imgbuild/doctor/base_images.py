"""Whether the base image of each operating system can be had."""

import tempfile
from pathlib import Path

from imgbuild.doctor.finding import Finding, Status, fine, skipped
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.programs import Programs
from imgbuild.inputs.bootstrap import KEYRINGS
from imgbuild.matrix.model import OperatingSystem

TIMEOUT = 15.0
#: The smallest component of each archive: its index is a few kilobytes where main has megabytes.
_SMALL_COMPONENT = {"debian": "contrib", "ubuntu": "multiverse"}


def check_bootstrap(
    name: str, system: OperatingSystem, machine: Machine, programs: Programs
) -> Finding:
    """Return whether mmdebstrap can make the base image of ``system`` here."""
    what = f"base {name}"
    packages = missing_packages(system, machine, programs)
    if packages:
        detail = f"made from the distribution's archive, which needs {', '.join(packages)}"
        return Finding(Status.MISSING, what, detail, machine.install(*packages), packages)
    return _ask_archive(what, system, programs)


def missing_packages(
    system: OperatingSystem, machine: Machine, programs: Programs
) -> tuple[str, ...]:
    """Return the packages that a bootstrap of ``system`` needs and this machine lacks."""
    keyring = KEYRINGS[system.distribution]
    missing: tuple[str, ...] = () if keyring.path.is_file() else (keyring.package,)
    missing += () if programs.find("mmdebstrap") else ("mmdebstrap",)
    return missing + (() if machine.root or programs.find("newuidmap") else ("uidmap",))


def check_registry(
    name: str, image: str, buildx: Path | None, host: str | None, programs: Programs
) -> Finding:
    """Return whether the registry has the base image ``image``, as the engine's client sees it."""
    what = f"base {name}"
    if buildx is None:
        return skipped(what, f"{image}; cannot be asked for without buildx")
    env = {"DOCKER_HOST": host} if host else {}
    command = [str(buildx), "imagetools", "inspect", image]
    asked = programs.run(command, timeout=TIMEOUT, env=env)
    if asked.ok:
        return fine(what, f"{image}, from its registry")
    # The engine may hold it already (loaded from an archive), so this alone prevents no build.
    detail = f"{image}: its registry does not answer ({asked.last(1)}); the engine must hold it"
    return Finding(Status.WARNING, what, detail, f"docker pull {image}")


def _ask_archive(what: str, system: OperatingSystem, programs: Programs) -> Finding:
    """Let mmdebstrap, with the sources it would use, verify the archive and fetch one index."""
    with tempfile.TemporaryDirectory(prefix="imgbuild-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # without root, mmdebstrap works under a subordinate id
        asked = programs.run(_command(system), timeout=TIMEOUT, env={"TMPDIR": folder})
    archive = f"{system.distribution.capitalize()}'s archive"
    if asked.ok:
        return fine(what, f"bootstrapped from {archive} ({system.suite}), which answers")
    detail = f"{archive} ({system.suite}) cannot be used: {_reason(asked.output) or asked.last(1)}"
    return Finding(Status.MISSING, what, detail, _how_to_reach(what.removeprefix("base ")))


def _command(system: OperatingSystem) -> list[str]:
    return [
        "mmdebstrap",
        "--variant=custom",
        "--format=null",
        "--architectures=amd64",
        f"--components={_SMALL_COMPONENT[system.distribution]}",
        f"--keyring={KEYRINGS[system.distribution].path}",
        '--aptopt=Acquire::http::Timeout "4"',
        '--aptopt=Acquire::https::Timeout "4"',
        '--aptopt=Acquire::Retries "0"',
        system.suite,
    ]


def _reason(output: str) -> str:
    """Return apt's first error: the ones after it only say that there was one."""
    errors = [line.strip() for line in output.splitlines() if line.startswith("E: ")]
    return errors[0].removeprefix("E: ") if errors else ""


def _how_to_reach(name: str) -> str:
    return (
        "give apt its proxy (/etc/apt/apt.conf.d, Acquire::http::Proxy) or http_proxy, or name a "
        "base image in imgbuild.local.yaml: "
        f"base: {{{name}: {{from: registry, image: NAME@sha256:DIGEST}}}}"
    )
