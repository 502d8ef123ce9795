"""Which packages are installed, from which suite; the commands are recorded, not run."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from fake_programs import DEBIAN, UBUNTU, FakePrograms

from imgbuild.doctor.apt import services_stay_stopped
from imgbuild.doctor.apt_sources import AptSource
from imgbuild.doctor.engine_packages import CLIENT, EnginePackages, disturbed
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.private_apt import private_apt
from imgbuild.doctor.programs import Outcome
from imgbuild.doctor.shell import Shell
from imgbuild.errors import MachineError

UPGRADES = "Inst libc6 [2.36-9] (2.41-1 Debian:sid)\nInst docker.io (28.5 Debian:sid)\n"


def installer(
    tmp_path: Path, machine: Machine = DEBIAN, answers: Mapping[str, Outcome] | None = None
) -> tuple[EnginePackages, FakePrograms]:
    apt = tmp_path / "apt"
    apt.mkdir()
    line = "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main\n"
    (apt / "sources.list").write_text(line)
    programs = FakePrograms(answers=answers)
    shell = Shell(programs, lambda _line: None)
    return EnginePackages(machine, shell, apt, tmp_path / "policy-rc.d"), programs


def test_the_newest_suite_first(tmp_path: Path) -> None:
    packages, programs = installer(tmp_path)
    packages.install()
    update, simulate, install = programs.commands
    assert update.startswith("apt-get update")
    assert "--simulate" in simulate
    assert install.startswith("apt-get install -y")
    assert install.endswith(
        "--no-install-recommends docker.io/sid docker-cli/sid docker-buildx/sid iptables"
    )
    assert all("APT_CONFIG" in env for env in programs.environments)


def test_the_next_suite_if_one_fails(tmp_path: Path) -> None:
    answers = {
        "--simulate --no-install-recommends docker.io/sid": Outcome(0, UPGRADES),
        "install -y -q -o DPkg::Lock::Timeout=300 --no-install-recommends docker.io/forky": Outcome(
            100, "E: broken"
        ),
    }
    packages, programs = installer(tmp_path, answers=answers)
    said: list[str] = []
    shell = Shell(programs, said.append)
    EnginePackages(DEBIAN, shell, packages.apt, packages.policy).install()
    assert programs.commands[-1].endswith("docker-buildx/trixie iptables")
    assert "sid: it would change libc6" in said
    assert "forky: E: broken" in said
    assert not any("docker.io/sid" in line and " -y " in line for line in programs.commands)


def test_no_suite_at_all(tmp_path: Path) -> None:
    packages, _ = installer(tmp_path, answers={"update": Outcome(100, "E: no network")})
    with pytest.raises(MachineError, match=r"sid: apt-get update: E: no network; forky"):
        packages.install()


def test_only_buildx(tmp_path: Path) -> None:
    packages, programs = installer(tmp_path)
    packages.install(CLIENT)
    assert programs.commands[-1].endswith("--no-install-recommends docker-buildx/sid")


def test_ubuntu_has_its_own(tmp_path: Path) -> None:
    packages, programs = installer(tmp_path, UBUNTU)
    packages.install()
    assert programs.commands[-1].endswith("docker.io docker-buildx iptables")
    assert not any("APT_CONFIG" in env for env in programs.environments)


def test_no_source_of_debian(tmp_path: Path) -> None:
    packages, programs = installer(tmp_path)
    (packages.apt / "sources.list").unlink()
    with pytest.raises(MachineError, match="no source of Debian's bookworm"):
        packages.install()
    assert not programs.commands


def test_what_counts_as_disturbing() -> None:
    plan = "Inst containerd [1.6] (2.1 sid)\nInst tini (0.19 bookworm)\nRemv exim4 [4.96]\n"
    assert disturbed(plan) == ["exim4"]
    assert disturbed(UPGRADES) == ["libc6"]


def test_the_machines_apt_stays_as_it_is(tmp_path: Path) -> None:
    apt = tmp_path / "apt"
    (apt / "preferences.d").mkdir(parents=True)
    (apt / "preferences.d" / "mine").write_text("Package: nano\n")
    own = AptSource(("http://mirror.example/debian",), ("bookworm",), ("main",))
    with private_apt([own], own.at("sid"), apt) as config:
        folder = config.parent
        sources = (folder / "sources.list.d" / "debian.sources").read_text()
        assert sources.count("Check-Valid-Until: no") == 1
        assert sources.index("Suites: bookworm") < sources.index("Suites: sid")
        pins = (folder / "preferences.d" / "imgbuild.pref").read_text()
        assert "Package: *\nPin: release n=sid\nPin-Priority: 100\n" in pins
        assert (folder / "preferences.d" / "mine").read_text() == "Package: nano\n"
        assert f'Dir::State::Lists "{folder}/lists";' in config.read_text()
    assert not folder.exists()
    assert [path.name for path in apt.rglob("*")] == ["preferences.d", "mine"]


def test_services_stay_stopped(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with services_stay_stopped(policy):
        assert "exit 101" in policy.read_text()
        left_by_a_killed_run = policy.read_text()
    assert not policy.exists()
    policy.write_text(left_by_a_killed_run)
    with services_stay_stopped(policy):
        pass
    assert not policy.exists()


def test_the_administrators_policy_stays(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")
    with services_stay_stopped(policy):
        assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert policy.exists()
