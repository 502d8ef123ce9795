"""The findings on inputs, with programs that a test put on PATH."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.doctor import input_checks
from imgbuild.doctor.checks import WRITE, Finding, Status
from imgbuild.doctor.input_checks import (
    check_base,
    check_ca,
    check_index,
    check_interpreter,
    check_sites,
)
from imgbuild.errors import InputError, MachineError
from imgbuild.files import ContentStore
from imgbuild.inputs.base import KEYRINGS
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix, OperatingSystem
from imgbuild.project import Project
from imgbuild.settings import (
    BootstrapBase,
    Interpreter,
    RegistryBase,
    Settings,
    SourceInterpreter,
    local_prefix,
)
from imgbuild.sites import Sites

pytest_plugins = ("doctor_fixtures",)
DIGEST = "example/base@sha256:" + "0" * 64
MADE_HERE = Sites(settings=Settings(base={"debian-12": BootstrapBase()}))
LOCAL, MINE = Path("/opt/local"), Path("/opt/mine")

Program = Callable[..., Path]


@pytest.fixture
def bookworm(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OperatingSystem:
    (tmp_path / "keyring.gpg").touch()
    ring = (tmp_path / "keyring.gpg", "debian-archive-keyring")
    monkeypatch.setitem(KEYRINGS, "debian", ring)
    return matrix.operating_systems["debian-12"]


def test_bootstrap(bookworm: OperatingSystem, program: Program, tmp_path: Path) -> None:
    program("mmdebstrap", f'echo "$@" > {tmp_path}/words')
    assert check_base("debian-12", bookworm, MADE_HERE).status is Status.FINE
    assert "bookworm" in (tmp_path / "words").read_text()
    program("mmdebstrap", "echo 'E: Could not connect' >&2; echo 'E: Some failed' >&2; exit 25")
    found = check_base("debian-12", bookworm, MADE_HERE)
    assert found.status is Status.MISSING
    assert found.detail.endswith("cannot be used: Could not connect")
    assert "base: {debian-12: {from: registry" in str(found.fix)


@pytest.mark.usefixtures("program")
def test_bootstrap_without_its_tools(
    bookworm: OperatingSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (tmp_path / "keyring.gpg").unlink()
    found = check_base("debian-12", bookworm, MADE_HERE)
    assert found.status is Status.MISSING
    assert "debian-archive-keyring mmdebstrap uidmap" in str(found.fix)


def test_registry(bookworm: OperatingSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    base = RegistryBase.model_validate({"from": "registry", "image": DIGEST})
    sites = Sites(settings=Settings(base={"debian-12": base}))
    monkeypatch.setattr(input_checks, "find_image", lambda image, _sites: image)
    found = check_base("debian-12", bookworm, sites)
    assert (found.status, found.choice) == (Status.FINE, {})

    monkeypatch.setattr(input_checks, "find_image", silent)
    found = check_base("debian-12", bookworm, sites)
    assert found.status is Status.MISSING
    assert "does not answer (no such host)" in found.detail
    assert "registry: HOST/FOLDER" in str(found.fix)
    found = check_base("debian-12", bookworm, sites, lambda image: image == DIGEST)
    assert found.status is Status.FINE
    assert DIGEST in found.detail


def silent(_image: str, _sites: Sites) -> None:
    raise MachineError("hub/debian: reading it failed: no such host. Check it.")


def test_sites(
    images: dict[str, Image],
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[str] = []

    def ask(url: str, _sites: Sites, *, exists: bool = True) -> None:
        assert not exists
        asked.append(url)
        if "anaconda" in url:
            raise MachineError("no route")

    monkeypatch.setattr(input_checks, "_ask", ask)
    matrix = images["tf-2.2-gpu-ubuntu"].matrix
    mirror = Settings.model_validate({"mirrors": {"nvidia-cuda": "http://m/cuda/"}})
    sites = Sites(matrix.upstream_urls, mirror)
    found = check_sites([images["tf-2.2-gpu-ubuntu"]], project.locks, sites)
    names = ["anaconda", "nvidia-cuda", "nvidia-machine-learning", "open-mpi", "ubuntu"]
    assert [row.what for row in found] == [f"site {name}" for name in names]
    assert "http://m/cuda/" in asked
    assert [row.status for row in found] == [Status.MISSING] + [Status.FINE] * 4
    assert "mirrors: {anaconda: URL}" in str(found[0].fix)
    found = check_sites([images["tf-2.2-cpu-debian"]], project.locks, sites)
    assert [row.what for row in found] == ["site debian"], "CPython has its own check"
    assert found[0].status is Status.SKIPPED, "only the base image has Debian's address"
    mirrored = Settings.model_validate({"mirrors": {"debian": "http://m/debian/"}})
    mirrored_sites = Sites(matrix.upstream_urls, mirrored)
    (found_mirror,) = check_sites([images["tf-2.2-cpu-debian"]], project.locks, mirrored_sites)
    assert found_mirror.status is Status.FINE
    assert "http://m/debian/" in asked
    store = ContentStore(tmp_path / "imgbuild" / "downloads")
    for name in matrix.sources:
        path = store.path(matrix.sources[name].sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = check_sites([images["tf-2.2-gpu-ubuntu"]], project.locks, sites)
    assert "site open-mpi" not in [row.what for row in found], "the cache has it"


def test_the_pinned_base_can_be_made_where_no_registry_answers(
    bookworm: OperatingSystem,
    matrix: Matrix,
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_checks, "find_image", silent)
    program("mmdebstrap", "exit 0")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    found = check_base("debian-12", bookworm, Sites())
    assert (found.status, found.fix, found.choice) == (Status.WARNING, None, {})
    assert "(no such host), so it is bootstrapped from" in found.detail
    system = matrix.operating_systems["ubuntu-18.04"]
    assert check_base("ubuntu-18.04", system, Sites()).status is Status.MISSING
    monkeypatch.setattr(input_checks, "missing_packages", lambda _: ["mmdebstrap"])
    found = check_base("debian-12", bookworm, Sites())
    assert found.status is Status.MISSING
    assert [line[:7] for line in str(found.fix).splitlines()] == ["let thi", "or let "]
    assert "mmdebstrap" in str(found.fix)
    monkeypatch.setattr(input_checks, "find_image", lambda image, _sites: image)
    found = check_base("debian-12", bookworm, Sites())
    assert found.status is Status.FINE, "a registry that answers needs no mmdebstrap"


def test_index(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    good = program("uv", 'test "$SSL_CERT_FILE" = /ca.pem -a "$UV_DEFAULT_INDEX" = http://m/s')
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(good))
    mirror = {"mirrors": {"python-index": "http://m/s"}, "ca_bundle": "/ca.pem"}
    assert check_index(Sites({}, Settings.model_validate(mirror))).status is Status.FINE
    silent = program("uv2", "echo 'error: dns error' >&2; exit 2")
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(silent))
    found = check_index(Sites())
    assert found.status is Status.MISSING
    assert "dns error" in found.detail


def certificate(content: bytes) -> str:
    body = base64.b64encode(content).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


def test_a_private_ca_is_one_that_no_public_list_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, bundle = tmp_path / "public", tmp_path / "bundle.pem"
    folder.mkdir()
    (folder / "one.crt").write_text(certificate(b"public"))
    monkeypatch.setattr(input_checks, "_PUBLIC_CAS", folder)
    bundle.write_text(certificate(b"public") + certificate(b"private"))
    for configured in (None, "/gone.pem"):
        found = check_ca(configured, {"PIP_CERT": str(bundle)})
        assert (found.status, found.fix) == (Status.WARNING, WRITE)
        assert "(PIP_CERT) has 1 private" in found.detail
        assert found.choice == {"ca_bundle": str(bundle)}
    found = check_ca(__file__, {"PIP_CERT": str(bundle)})
    assert (found.status, found.choice) == (Status.FINE, {}), "the user's own stays"
    bundle.write_text(certificate(b"public"))
    monkeypatch.setattr("imgbuild.doctor.input_checks.SYSTEM_BUNDLES", (Path("/gone"), bundle))
    found = check_ca(None, {})
    assert (found.status, found.choice) == (Status.FINE, {"ca_bundle": None})
    found = check_ca(None, {"SSL_CERT_FILE": "/gone.pem"})
    assert (found.status, found.fix) == (Status.MISSING, "unset SSL_CERT_FILE")


@pytest.fixture
def interpreter(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, list[Path], Interpreter], Finding]:
    """Return how to check CPython where its source has a problem, and prefixes are valid."""

    def check(problem: str, valid: list[Path], current: Interpreter) -> Finding:
        def verify(path: Path, _version: str) -> None:
            if path not in valid:
                raise InputError(f"{path} cannot import ssl.")

        def ask(_url: str, _sites: Sites) -> None:
            if problem:
                raise MachineError(problem)

        monkeypatch.setattr(input_checks, "_ask", ask)
        monkeypatch.setattr(input_checks, "find_prefixes", lambda _: valid)
        monkeypatch.setattr(input_checks, "verify_prefix", verify)
        settings = Settings(cpython={"3.6.15": current})
        return check_interpreter("3.6.15", matrix, Sites({}, settings))

    return check


SOURCE = SourceInterpreter()


@pytest.mark.parametrize(
    ("problem", "prefixes", "current", "way"),
    [
        ("", [], SOURCE, SOURCE),
        ("", [LOCAL], SOURCE, SOURCE),
        ("", [LOCAL], local_prefix(LOCAL), local_prefix(LOCAL)),
        ("", [LOCAL], local_prefix(MINE), SOURCE),
        ("no route", [LOCAL], local_prefix(LOCAL), local_prefix(LOCAL)),
        ("no route", [LOCAL], SOURCE, local_prefix(LOCAL)),
    ],
)
def test_where_an_interpreter_is_taken_from(
    interpreter: Callable[..., Finding],
    problem: str,
    prefixes: list[Path],
    current: Interpreter,
    way: Interpreter,
) -> None:
    found = interpreter(problem, prefixes, current)
    assert found.choice == {"cpython": {"3.6.15": way}}
    fine = (Status.FINE, None)
    assert (found.status, found.fix) == (fine if way == current else (Status.MISSING, WRITE))


def test_an_interpreter_that_cannot_be_had(interpreter: Callable[..., Finding]) -> None:
    found = interpreter("no route", [], local_prefix(MINE))
    assert (found.status, found.choice) == (Status.MISSING, {})
    assert "no route" in found.detail
    assert f"{MINE} cannot import ssl." in found.detail
    assert "cpython: {3.6.15: {from: prefix" in str(found.fix)
