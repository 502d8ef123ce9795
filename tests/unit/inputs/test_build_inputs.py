"""Settings that cannot be meant are refused before anything is made."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import uv

from imgbuild.build.bases import require_whole
from imgbuild.build.targets import image_target
from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.engine.types import AMD64
from imgbuild.inputs.base import BOOTSTRAPPED
from imgbuild.inputs.bootstrap import base_recipe
from imgbuild.inputs.build_inputs import BuildInputs, prepare_inputs, prepare_uv
from imgbuild.inputs.oci_layout import write_layout
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem

ROOT = Path(__file__).resolve().parents[3]
NAME, GPU = "tf-2.2-cpu-debian", "tf-2.2-gpu-ubuntu"
DIGEST = "sha256:" + "a" * 64
BOOTSTRAP = {"base": {"debian-12": {"from": "bootstrap"}}}
SNAPSHOT = {"url": "http://m/", "snapshot": "20261101T000000Z"}
BASE = {"from": "registry", "image": f"x/y@{DIGEST}"}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _prepare(images: dict[str, Image], settings: dict[str, Any], name: str = NAME) -> BuildInputs:
    made = Settings.model_validate(settings)
    return prepare_inputs([images[name]], made, Project(ROOT))


@pytest.mark.parametrize("machine", [("Linux", "aarch64"), ("Darwin", "x86_64")])
def test_uv_of_another_platform_is_no_context(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, machine: tuple[str, str]
) -> None:
    """A stage of the Dockerfile, or the wheel for the image's architecture, has the program."""
    monkeypatch.setattr("platform.system", lambda: machine[0])
    monkeypatch.setattr("platform.machine", lambda: machine[1])
    inputs = _prepare(images, {})
    assert inputs.uv_for(AMD64) is None
    assert (inputs.uv_for("linux/arm64") is None) == (machine[0] == "Darwin")
    item = PlanItem(images[NAME], InputDigest("sha256:1", {}), Action.BUILD, "")
    target = image_target(item, inputs, {"downloads": Path("/d")}, Project(ROOT), None)
    assert {*target.contexts} == {"base", "downloads"}


def test_a_base_by_digest_needs_nothing_made(images: dict[str, Image]) -> None:
    base = _prepare(images, {"base": {"debian-12": BASE}}).bases["debian-12"]
    assert (base.reference, base.digest, base.origin) == (f"x/y@{DIGEST}", DIGEST, "registry")
    assert _prepare(images, BOOTSTRAP).bases["debian-12"].digest is None
    for name, system in ((NAME, "debian-12"), (GPU, "ubuntu-18.04")):
        pinned = _prepare(images, {}, name).bases[system]
        assert pinned.reference == images[name].os.image
        assert pinned.digest == pinned.reference.partition("@")[2]
        mirrored = _prepare(images, {"registry": "registry.example.org/hub"}, name).bases[system]
        assert mirrored.reference == f"registry.example.org/hub/{pinned.reference}"


def test_the_layer_of_a_layout_is_read_before_an_engine_gets_it(
    images: dict[str, Image], tmp_path: Path
) -> None:
    rootfs, folder = tmp_path / "rootfs.tar", tmp_path / "layout"
    rootfs.write_bytes(b"any")
    write_layout(folder, rootfs, name="mine", epoch=0)
    settings = {"base": {"debian-12": {"from": "layout", "path": str(folder)}}}
    base = _prepare(images, settings).bases["debian-12"]
    require_whole(base)
    (layer,) = (path for path in folder.rglob("blobs/sha256/*") if path.read_bytes()[:1] == b"\x1f")
    layer.write_bytes(layer.read_bytes()[:-1] + b"!")
    with pytest.raises(InputError, match=rf"{layer.name} does not match its digest"):
        require_whole(base)
    with pytest.raises(MachineError, match="doctor --write") as caught:
        require_whole(replace(base, origin=BOOTSTRAPPED))
    assert caught.value.exit_code == 3


def _keyed(upstream: str, keyring: str) -> dict[str, Any]:
    return {"mirrors": {upstream: {"url": "http://m/x", "keyring": keyring}}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"base": {"debian-13": BASE}}, "base: the matrix has no debian-13"),
        ({"cpython": {"3.7.9": {"from": "prefix", "path": "/x"}}}, "no 3.7.9.* one of: 3.6.2"),
        ({"mirrors": {"ubunto": "http://m/x"}}, "mirrors: the matrix has no ubunto"),
        ({"substitutes": {"nosuch": "a" * 64}}, r"no nosuch.* one of: .*openmpi-3\.1\.2\.tar"),
        ({"netrc": "/nonexistent"}, "The settings: netrc /nonexistent: No such file"),
        ({"netrc": str(ROOT / "images/files/keyrings/nvidia-3bf863cc.gpg")}, "not UTF-8 text"),
        (_keyed("nvidia-cuda", "/dev/zero"), "/dev/zero is not binary"),
        (_keyed("nvidia-cuda", "/etc/passwd"), "/etc/passwd is not binary"),
        (_keyed("anaconda", "/k"), "mirrors.anaconda: .* verified by sha256"),
        (_keyed("ubuntu", "/k"), "mirrors.ubuntu: keyring /k: No such file"),
        ({"base": {"debian-12": {"from": "layout", "path": "/no"}}}, "not a complete OCI layout"),
        ({"mirrors": {"ubuntu": SNAPSHOT}}, "mirrors with a snapshot: .* ubuntu.* one of: deb"),
        ({"ca_bundle": "/etc/passwd"}, "ca_bundle /etc/passwd is not a file of PEM certificates"),
        ({"ca_bundle": "/no"}, "ca_bundle /no is not a file of PEM certificates"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    images: dict[str, Image], settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        _prepare(images, settings)


def test_no_build_gets_a_login_for_plain_http(images: dict[str, Image], tmp_path: Path) -> None:
    path = tmp_path / "netrc"
    path.write_text("machine m.example login me password secret\n")
    settings = {"netrc": str(path), "mirrors": {"python-index": "http://m.example/simple"}}
    with pytest.raises(InputError, match=r"http://m\.example/simple, .*plain http"):
        _prepare(images, settings)


def test_a_substitute_has_its_own_sha256(images: dict[str, Image]) -> None:
    settings = {"substitutes": {"openmpi-3.1.2.tar.gz": "a" * 64}}
    own, changed = (_prepare(images, s, GPU).downloads[GPU] for s in ({}, settings))
    names = [file.name for file in own.contexts["downloads"]]
    assert names == ["Miniconda3-4.5.11-Linux-x86_64.sh", "openmpi-3.1.2.tar.gz"]
    assert any(f.name.startswith("python-3.6.2-") for f in own.contexts["conda-packages"])
    assert (own.arguments, changed.arguments) == ({}, {"SHA256_MPI": "a" * 64})
    assert changed.contexts["downloads"][1].sha256 == "a" * 64


def test_a_snapshot_is_another_base_wherever_it_comes_from(images: dict[str, Image]) -> None:
    image = images[NAME]

    def recipe(mirror: object) -> Mapping[str, object]:
        return base_recipe(image, Settings.model_validate({"mirrors": {"debian": mirror}}))

    dated = recipe(SNAPSHOT)
    assert dated["snapshot"] == SNAPSHOT["snapshot"]
    assert recipe({**SNAPSHOT, "url": "http://n/"}) == dated
    assert recipe("http://m/debian") == base_recipe(image, Settings()) != dated


@pytest.mark.parametrize("upstream", ["nvidia-cuda", "nvidia-machine-learning"])
def test_the_committed_keys_are_those_of_the_matrix(
    images: dict[str, Image], upstream: str
) -> None:
    """The fingerprint of a version 4 key: SHA-1 over its first packet (RFC 4880, 12.2)."""
    keyring = images[GPU].matrix.upstreams[upstream].keyring
    assert keyring is not None
    data = (ROOT / "images/files/keyrings" / keyring.file).read_bytes()
    assert data[0] == 0x99, "an old-format public key packet with a length of two octets"
    length = int.from_bytes(data[1:3], "big")
    packet = b"\x99" + data[1:3] + data[3 : 3 + length]
    assert hashlib.sha1(packet, usedforsecurity=False).hexdigest().upper() == keyring.fingerprint


def test_another_uv_has_another_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The context holds the program alone, which must be there."""
    installed, cache = tmp_path / "uv", tmp_path / "cache"
    installed.write_bytes(b"the program")
    installed.chmod(0o755)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(installed))
    context = prepare_uv(cache)
    assert os.access(context / "uv", os.X_OK)
    (context / "more").touch()
    assert prepare_uv(cache) == context
    assert [path.name for path in context.iterdir()] == ["uv"]
    installed.write_bytes(b"the next program")
    assert prepare_uv(cache) != context
    monkeypatch.setattr(uv, "find_uv_bin", Mock(side_effect=FileNotFoundError("uv")))
    with pytest.raises(MachineError, match="pip install --force-reinstall uv=="):
        prepare_uv(cache)


def test_mirrors_are_a_secret_and_their_keys_a_context(
    images: dict[str, Image], tmp_path: Path
) -> None:
    key = tmp_path / "mine.gpg"
    key.write_bytes(b"\x99mine")
    mirrors = {
        "ubuntu": {"url": "http://m/ubuntu", "keyring": str(key)},
        "nvidia-cuda": {"url": "http://m/c", "keyring": str(key)},
    }
    inputs = _prepare(images, {"mirrors": mirrors}, GPU)
    text = inputs.secrets["upstreams"].read_text(encoding="utf-8")
    assert text == "nvidia-cuda http://m/c\nubuntu http://m/ubuntu\n"
    assert inputs.keyrings is not None
    names = sorted(path.name for path in inputs.keyrings.iterdir())
    assert names == ["nvidia-3bf863cc.gpg", "nvidia-7fa2af80.gpg"], "of the Dockerfiles alone"
    assert (inputs.keyrings / "nvidia-3bf863cc.gpg").read_bytes() == b"\x99mine"
    assert (inputs.keyrings / "nvidia-7fa2af80.gpg").stat().st_size > 1000
