"""The findings on inputs, with programs that a test put on PATH."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import ContentStore
from imgbuild.core.project import Project
from imgbuild.core.settings import (
    Interpreter,
    Settings,
    SourceInterpreter,
    base_setting,
    local_prefix,
)
from imgbuild.doctor import input_checks
from imgbuild.doctor.checks import WRITE, Finding, Status
from imgbuild.doctor.input_checks import (
    check_base,
    check_ca,
    check_index,
    check_interpreter,
    check_sites,
)
from imgbuild.inputs.bootstrap import KEYRINGS
from imgbuild.matrix.images import Image
from imgbuild.net.sites import Sites
from support.fake_uv import write_fake_uv
from support.faulty_server import FaultyServer, Reply

pytest_plugins = ("support.doctor_fixtures",)
DIGEST = "example/base@sha256:" + "0" * 64
MADE_HERE = Sites(settings=Settings(base={"debian-12": base_setting("bootstrap")}))
LOCAL, MINE = Path("/opt/local"), Path("/opt/mine")

Program = Callable[..., Path]


@pytest.fixture
def bookworm(images: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    (tmp_path / "keyring.gpg").touch()
    ring = (tmp_path / "keyring.gpg", "debian-archive-keyring")
    monkeypatch.setitem(KEYRINGS, "debian", ring)
    monkeypatch.setattr(input_checks, "find_bootstrapped", lambda *_: object())
    return images["tf-2.2-cpu-debian"]


def test_bootstrap(
    bookworm: Image, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    program("mmdebstrap", f'echo "$@" > {tmp_path}/words')
    assert check_base(bookworm, MADE_HERE).status is Status.FINE
    assert "bookworm" in (tmp_path / "words").read_text()
    with monkeypatch.context() as unmade:
        unmade.setattr(input_checks, "find_bootstrapped", lambda *_: None)
        found = check_base(bookworm, MADE_HERE)
        assert (found.status, found.fix) == (Status.MISSING, WRITE), "no build makes it"
    program("mmdebstrap", "echo 'E: Could not connect' >&2; echo 'E: Some failed' >&2; exit 25")
    found = check_base(bookworm, MADE_HERE)
    assert found.status is Status.MISSING
    assert found.detail.endswith("cannot be used: Could not connect")
    program("mmdebstrap").unlink()
    (tmp_path / "keyring.gpg").unlink()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    found = check_base(bookworm, MADE_HERE)
    assert found.status is Status.MISSING
    assert "debian-archive-keyring mmdebstrap uidmap" in str(found.fix)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the images whose registries answer: none yet."""
    answering: set[str] = set()

    def find(image: str, _sites: Sites) -> str:
        if image not in answering:
            raise MachineError("hub/debian: reading it failed: no such host. Check it.")
        return image

    monkeypatch.setattr(input_checks, "find_image", find)
    return answering


def test_a_base_image_of_a_registry(bookworm: Image, answering: set[str]) -> None:
    base = base_setting("registry", image=DIGEST)
    sites = Sites(settings=Settings(base={"debian-12": base}))
    found = check_base(bookworm, sites)
    assert found.status is Status.MISSING
    assert "does not answer (no such host)" in found.detail
    found = check_base(bookworm, sites, lambda image: image == DIGEST)
    assert (found.status, DIGEST in found.detail) == (Status.FINE, True), "the engine reaches it"
    answering.add(DIGEST)
    found = check_base(bookworm, sites)
    assert (found.status, found.choice) == (Status.FINE, {})


def test_the_pinned_base_can_be_made_where_no_registry_answers(
    bookworm: Image,
    answering: set[str],
    images: dict[str, Image],
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program("mmdebstrap")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    found = check_base(bookworm, Sites())
    assert (found.status, found.fix, found.choice) == (Status.MISSING, WRITE, {})
    ubuntu = check_base(images["tf-2.2-gpu-ubuntu"], Sites())
    assert (ubuntu.status, ubuntu.fix == WRITE) == (Status.MISSING, False)
    monkeypatch.setattr(input_checks, "missing_packages", lambda _: ["mmdebstrap"])
    found = check_base(bookworm, Sites())
    assert (found.status, "mmdebstrap" in str(found.fix)) == (Status.MISSING, True)
    answering.add(str(bookworm.os.image))
    assert check_base(bookworm, Sites()).status is Status.FINE, "it needs none then"


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

    def states(name: str, **mirrors: str) -> dict[str, Status]:
        own = Settings.model_validate({"mirrors": {"nvidia-cuda": "http://m/cuda/", **mirrors}})
        found = check_sites([images[name]], project.locks, Sites(matrix.upstream_urls, own))
        return {row.what.removeprefix("site "): row.status for row in found}

    monkeypatch.setattr(input_checks, "_ask", ask)
    gpu, cpu = "tf-2.2-gpu-ubuntu", "tf-2.2-cpu-debian"
    matrix = images[gpu].matrix
    needed = ("nvidia-cuda", "nvidia-machine-learning", "open-mpi", "ubuntu")
    assert states(gpu) == {"anaconda": Status.MISSING} | dict.fromkeys(needed, Status.FINE)
    assert "http://m/cuda/" in asked
    # CPython has its own check, and only the base image has Debian's address.
    assert states(cpu) == {"debian": Status.SKIPPED}
    assert states(cpu, debian="http://m/debian/") == {"debian": Status.FINE}
    store = ContentStore(tmp_path / "imgbuild" / "downloads")
    for source in matrix.sources.values():
        path = store.path(source.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert "open-mpi" not in states(gpu), "the cache has it"


def test_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = 'test "$SSL_CERT_FILE" = /ca.pem -a "$UV_DEFAULT_INDEX" = http://m/s'
    good = write_fake_uv(tmp_path / "uv", told)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(good))
    mirror = {"mirrors": {"python-index": "http://m/s"}, "ca_bundle": "/ca.pem"}
    assert check_index(Sites({}, Settings.model_validate(mirror))).status is Status.FINE
    silent = write_fake_uv(tmp_path / "uv2", "echo 'error: dns error' >&2; exit 2")
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(silent))
    found = check_index(Sites())
    assert found.status is Status.MISSING
    assert "dns error" in found.detail


def test_an_index_that_loses_one_request(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build would ask again as well."""
    wheel = "wheel-0.37.1-py2.py3-none-any.whl"
    server.project("wheel", f'href="/{wheel}" data-core-metadata="true">{wheel}')
    server.replies["/simple/wheel/"].insert(0, Reply(status=503))
    metadata = b"Metadata-Version: 2.1\nName: wheel\nVersion: 0.37.1\n"
    server.give(f"/{wheel}.metadata", Reply(metadata))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.url}/simple")
    found = check_index(Sites())
    assert found.status is Status.FINE, found.detail
    assert [asked.path for asked in server.asked].count("/simple/wheel/") == 2


def test_a_private_ca_is_one_that_no_public_list_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, bundle = tmp_path / "public", tmp_path / "bundle.pem"
    folder.mkdir()
    public, private = (
        f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n" for body in ("aa", "bb")
    )
    (folder / "one.crt").write_text(public)
    monkeypatch.setattr(input_checks, "_PUBLIC_CAS", folder)
    bundle.write_text(public + private)
    for configured in (None, "/gone.pem"):
        found = check_ca(configured, {"PIP_CERT": str(bundle)})
        assert (found.status, found.fix) == (Status.WARNING, WRITE)
        assert "(PIP_CERT) has 1 private" in found.detail
        assert found.choice == {"ca_bundle": str(bundle)}
    found = check_ca(__file__, {"PIP_CERT": str(bundle)})
    assert (found.status, found.choice) == (Status.FINE, {}), "the user's own stays"
    bundle.write_text(public)
    monkeypatch.setattr(input_checks, "SYSTEM_BUNDLES", (Path("/gone"), bundle))
    found = check_ca(None, {})
    assert (found.status, found.choice) == (Status.FINE, {"ca_bundle": None})
    found = check_ca(None, {"SSL_CERT_FILE": "/gone.pem"})
    assert (found.status, found.fix) == (Status.MISSING, "unset SSL_CERT_FILE")


@pytest.fixture
def interpreter(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Finding]:
    """Return how to check CPython where its source has a problem, and prefixes are valid.

    ``machine`` is this machine.
    """
    image = images["tf-2.2-cpu-debian"]

    def check(
        problem: str, valid: list[Path], current: Interpreter, machine: str = "x86_64"
    ) -> Finding:
        def verify(path: Path, _version: str) -> None:
            if path not in valid:
                raise InputError(f"{path} cannot import ssl.")

        def ask(_url: str, _sites: Sites) -> None:
            if problem:
                raise MachineError(problem)

        monkeypatch.setattr(input_checks, "_ask", ask)
        monkeypatch.setattr(input_checks, "find_prefixes", lambda _: valid)
        monkeypatch.setattr(input_checks, "verify_prefix", verify)
        monkeypatch.setattr("platform.machine", lambda: machine)
        settings = Settings(cpython={"3.6.15": current})
        return check_interpreter(image, Sites({}, settings))

    return check


SOURCE, HERE, OTHER = SourceInterpreter(), local_prefix(LOCAL), local_prefix(MINE)


@pytest.mark.parametrize(
    ("problem", "prefixes", "current", "way"),
    [
        ("", [], SOURCE, SOURCE),
        ("", [LOCAL], SOURCE, SOURCE),
        ("", [LOCAL], HERE, HERE),
        ("", [LOCAL], OTHER, SOURCE),
        ("no route", [LOCAL], HERE, HERE),
        ("no route", [LOCAL], SOURCE, HERE),
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


def test_a_prefix_of_another_machine_is_not_taken(interpreter: Callable[..., Finding]) -> None:
    """An ARM machine cannot run it, and an image for arm64 cannot have one of x86-64."""
    found = interpreter("", [LOCAL], HERE, "aarch64")
    assert (found.status, found.choice) == (Status.FINE, {}), "its entry stays, for other images"
    found = interpreter("no route", [LOCAL], HERE, "aarch64")
    assert (found.status, found.choice) == (Status.MISSING, {})
    assert "not for linux/amd64" in str(found.fix)


def test_an_interpreter_that_cannot_be_had(interpreter: Callable[..., Finding]) -> None:
    found = interpreter("no route", [], OTHER)
    assert (found.status, found.choice) == (Status.MISSING, {})
    for said in ("no route", f"{MINE} cannot import ssl."):
        assert said in found.detail
