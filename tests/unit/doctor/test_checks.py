"""Each check, once where all is well and once where it is not."""

import base64
import errno
from pathlib import Path

import pytest
from fake_programs import DEBIAN, OTHER, USER, FakePrograms

from imgbuild.doctor import base_images, ca_bundle
from imgbuild.doctor.base_images import check_bootstrap, check_registry
from imgbuild.doctor.ca_bundle import CaState, check_ca, choose_ca, read_ca_state
from imgbuild.doctor.diagnosis import check_client, check_git
from imgbuild.doctor.disk import GB, check_disk
from imgbuild.doctor.finding import Status
from imgbuild.doctor.package_index import check_index
from imgbuild.doctor.programs import Outcome
from imgbuild.inputs.bootstrap import _Keyring
from imgbuild.matrix.model import Matrix, OperatingSystem

DIGEST = "example/base@sha256:" + "0" * 64


@pytest.fixture
def bookworm(matrix: Matrix) -> OperatingSystem:
    return matrix.operating_systems["debian-12"]


@pytest.fixture(autouse=True)
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keyring.gpg"
    path.touch()
    ring = _Keyring(path, "debian-archive-keyring")
    monkeypatch.setattr(base_images, "KEYRINGS", {"debian": ring})
    return path


@pytest.mark.parametrize(
    ("free", "status"),
    [(50 * GB, Status.FINE), (9 * GB, Status.WARNING), (2 * GB, Status.MISSING)],
)
def test_disk(free: int, status: Status) -> None:
    assert check_disk("disk", Path("/data"), "prune", lambda _: free).status is status


def test_disk_that_cannot_be_asked() -> None:
    def refuse(_: Path) -> int:
        raise OSError(errno.EACCES, "no")

    assert check_disk("disk", Path("/data"), "prune", refuse).status is Status.SKIPPED


def test_git() -> None:
    assert check_git(DEBIAN, FakePrograms("git")).status is Status.FINE
    missing = check_git(USER, FakePrograms())
    assert missing.mend == "sudo apt-get install -y git"
    assert missing.packages == ("git",)


def test_bootstrap_asks_the_archive_through_mmdebstrap(bookworm: OperatingSystem) -> None:
    programs = FakePrograms("mmdebstrap")
    assert check_bootstrap("debian-12", bookworm, DEBIAN, programs).status is Status.FINE
    assert "bookworm" in programs.commands[0]
    assert "http" not in programs.commands[0].replace("Acquire::http", ""), "no host is named"


def test_bootstrap_without_its_tools(bookworm: OperatingSystem, keyring: Path) -> None:
    keyring.unlink()
    programs = FakePrograms()
    found = check_bootstrap("debian-12", bookworm, USER, programs)
    assert found.status is Status.MISSING
    assert found.packages == ("debian-archive-keyring", "mmdebstrap", "uidmap")
    assert found.mend == "sudo apt-get install -y debian-archive-keyring mmdebstrap uidmap"
    assert not programs.commands


def test_bootstrap_when_the_archive_does_not_answer(bookworm: OperatingSystem) -> None:
    said = "Err:1\nE: Failed to fetch InRelease  Could not connect\nE: Some index files failed\n"
    programs = FakePrograms("mmdebstrap", answers={"mmdebstrap": Outcome(25, said)})
    found = check_bootstrap("debian-12", bookworm, DEBIAN, programs)
    assert found.status is Status.MISSING
    assert "Could not connect" in found.detail
    assert "base: {debian-12: {from: registry" in (found.mend or "")


def test_registry(tmp_path: Path) -> None:
    programs = FakePrograms()
    found = check_registry("debian-12", DIGEST, tmp_path / "buildx", "unix:///s", programs)
    assert found.status is Status.FINE
    assert programs.environments == [{"DOCKER_HOST": "unix:///s"}]
    silent = FakePrograms(answers={"imagetools": Outcome(1, "no such host")})
    found = check_registry("debian-12", DIGEST, tmp_path / "buildx", None, silent)
    assert found.status is Status.WARNING
    assert check_registry("debian-12", DIGEST, None, None, programs).status is Status.SKIPPED


def test_index() -> None:
    programs = FakePrograms()
    assert check_index(programs, "/ca.pem").status is Status.FINE
    assert programs.environments[0]["SSL_CERT_FILE"] == "/ca.pem"
    silent = FakePrograms(answers={"compile": Outcome(2, "error: dns error\n")})
    found = check_index(silent, None)
    assert found.status is Status.MISSING
    assert "dns error" in found.detail


def certificate(content: bytes) -> str:
    body = base64.b64encode(content).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


def test_a_private_ca_is_one_that_no_public_list_has(tmp_path: Path) -> None:
    bundle, public = tmp_path / "bundle.pem", tmp_path / "public.pem"
    public.write_text(certificate(b"public"))
    bundle.write_text(certificate(b"public") + certificate(b"private"))
    known = ca_bundle._certificates(public)
    state = read_ca_state({"PIP_CERT": str(bundle)}, (), known)
    assert state == CaState(bundle, "PIP_CERT", 1)
    assert check_ca(state, None, "write").status is Status.WARNING
    assert check_ca(state, str(bundle), "write").status is Status.FINE
    assert choose_ca(None, state) == str(bundle)
    assert choose_ca(str(public), state) == str(public), "what the user set stays"
    assert choose_ca("/gone.pem", state) == str(bundle)


def test_no_private_ca(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(certificate(b"public"))
    state = read_ca_state({}, (tmp_path / "none", bundle), ca_bundle._certificates(bundle))
    assert check_ca(state, None, "write").status is Status.FINE
    assert choose_ca(None, state) is None


def test_a_variable_that_names_no_file(tmp_path: Path) -> None:
    state = read_ca_state({"SSL_CERT_FILE": str(tmp_path / "gone")}, (), frozenset())
    found = check_ca(state, None, "write")
    assert found.status is Status.MISSING
    assert found.mend == "unset SSL_CERT_FILE"


def test_where_there_is_no_apt() -> None:
    assert OTHER.install("git") == "install git with this system's package manager"


def test_the_docker_client_is_for_the_suites() -> None:
    assert check_client(FakePrograms("docker")).status is Status.FINE
    missing = check_client(FakePrograms())
    assert missing.status is Status.WARNING
    assert "--no-test" in missing.detail
