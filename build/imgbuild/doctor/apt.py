"""Installing packages, without starting anything that they bring."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from imgbuild.doctor.shell import Shell

POLICY = Path("/usr/sbin/policy-rc.d")
#: invoke-rc.d(8): 101 forbids the action. The marker tells a file that a killed run left behind.
_MARKER = "# Put here by imgbuild while it installs packages; may be removed."
_FORBID = f"#!/bin/sh\n{_MARKER}\nexit 101\n"
_NO_QUESTIONS = {"DEBIAN_FRONTEND": "noninteractive"}
#: Waits for another apt that is at work, such as unattended-upgrades.
_PATIENT = ("-o", "DPkg::Lock::Timeout=300")


def install_packages(packages: Sequence[str], shell: Shell, policy: Path = POLICY) -> None:
    """Install ``packages`` from the sources that apt has here.

    Raises:
        MachineError: apt cannot; with its last lines.

    """
    # One broken source of a third party must not keep the others from being used.
    shell.run(["apt-get", "update", "-q"], _NO_QUESTIONS)
    with services_stay_stopped(policy):
        shell.must(install_command(packages), _NO_QUESTIONS)


def install_command(packages: Sequence[str], *, simulate: bool = False) -> list[str]:
    """Return apt's command line; ``simulate`` changes nothing and says what would be done."""
    only = ["--no-install-recommends", *packages]
    if simulate:
        return ["apt-get", "install", "--simulate", *only]
    return ["apt-get", "install", "-y", "-q", *_PATIENT, *only]


def quiet_environment(config: Path) -> Mapping[str, str]:
    """Return the environment in which apt asks nothing and reads ``config`` first."""
    return {**_NO_QUESTIONS, "APT_CONFIG": str(config)}


@contextmanager
def services_stay_stopped(policy: Path = POLICY) -> Iterator[None]:
    """Keep packages from starting their services, as images of the distribution do."""
    if policy.exists() and _MARKER not in policy.read_text(errors="replace"):
        yield  # the administrator's own policy, which is not ours to change
        return
    policy.write_text(_FORBID, encoding="ascii")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)
