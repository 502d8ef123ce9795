"""The same inputs make the same layers: images are built once more from nothing, and compared."""

from pathlib import Path
from typing import Any

import pytest

from imgbuild.engine.client import Engine
from imgbuild.inputs.oci_layout import unpack_archive
from support.checkout import COPY_REPOSITORY, Checkout
from support.copied_checkout import change_settings
from support.debian_program import unpacked

#: The quickest image to build; the other store's is in test_offline.py.
QUICKEST = "tf-1.10-cpu-debian"
#: One of each kind: Intel MPI and Python 3.6; CMake; Python 3.8; Debian's own Python and CUDA.
KINDS = (
    "tf-1.12-cpu-debian-intelmpi",
    "tf-2.3-cpu-debian",
    "tf-2.6-cpu-debian",
    "tf-2.12-gpu-debian",
)
#: A clock five days on, for every program of a step (in ten the archive's lists expire); times of
#: files are those of the machine. Its own files are old, so that no step
#: takes them for its own, and where ldconfig does not look.
ANOTHER_DAY = """\
FROM {base}
COPY libfaketime.so.1 /
RUN echo +5d > /etc/faketimerc && echo /libfaketime.so.1 > /etc/preload \\
    && touch --date=@0 /etc/faketimerc /etc/preload /libfaketime.so.1 \\
    && mv /etc/preload /etc/ld.so.preload
ENV NO_FAKE_STAT=1 FAKETIME_DONT_FAKE_MONOTONIC=1
"""
ANOTHER_DAY_NAME = "imgbuild-tests/another-day:1"
SECONDS = 3600


def _reproduced(checkout: Checkout, name: str, code: int) -> dict[str, Any]:
    checkout.run("build", name, "--no-test", timeout=SECONDS)
    (found,) = checkout.json("verify", "--rebuild", name, code=code, timeout=SECONDS)
    return dict(found)


def _differing(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [layer for layer in found["layers"] if not layer["same"]]


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize(
    "name", [QUICKEST, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS)]
)
def test_an_image_is_the_same_from_nothing(checkout: Checkout, name: str) -> None:
    found = _reproduced(checkout, name, 0)
    assert (_differing(found), found["configuration"]) == ([], {})


@pytest.mark.nightly
def test_a_stray_time_and_an_unset_seed_are_found(copy: Checkout) -> None:
    """The last step does not set its times, and byte code is compiled by another seed each time."""
    for name, line, instead in (
        ("start/set-up", "settle /\n", ""),
        ("reproducible.sh", "export PYTHONHASHSEED=0\n", "unset PYTHONHASHSEED\n"),
    ):
        copy.edit(f"images/files/{name}", line, instead)
    *below, last = _differing(_reproduced(copy, QUICKEST, 1))
    assert [*last["files"]["etc/profile.d/imgbuild.sh"]] == ["time"]
    changed = {path: how for layer in below for path, how in layer["files"].items()}
    assert any(path.endswith(".pyc") and "content" in how for path, how in changed.items())


@pytest.mark.nightly
def test_an_image_is_the_same_on_another_day(
    checkout: Checkout, copy: Checkout, engine: Engine, tmp_path: Path
) -> None:
    checkout.run("build", QUICKEST, "--no-test", timeout=SECONDS)
    today = engine.need("imgbuild/tensorflow:1.10-cpu").layers
    base, layers = _base_of_another_day(checkout, engine, tmp_path)
    change_settings(copy.root, base={"debian-12": {"from": "layout", "path": str(base)}})
    try:
        copy.run("build", QUICKEST, "--no-test", timeout=SECONDS)
    finally:
        checkout.docker("rmi", ANOTHER_DAY_NAME)
    assert engine.need(f"{COPY_REPOSITORY}:1.10-cpu").layers[layers:] == today[1:]


def _base_of_another_day(checkout: Checkout, engine: Engine, folder: Path) -> tuple[Path, int]:
    """Return an OCI layout of the base with another clock, and how many layers it has."""
    name, made = ANOTHER_DAY_NAME, folder / "made"
    made.mkdir()
    (library,) = unpacked("libfaketime").glob("usr/lib/*/faketime/libfaketime.so.1")
    (made / library.name).write_bytes(library.read_bytes())
    labels = engine.need("imgbuild/tensorflow:1.10-cpu").labels
    base = labels["org.opencontainers.image.base.name"]
    (made / "Dockerfile").write_text(ANOTHER_DAY.format(base=base), encoding="utf-8")
    checkout.printed("buildx", "build", "--load", "--tag", name, str(made))
    try:
        checkout.printed("save", "--output", str(folder / "base.tar"), name)
        count = len(engine.need(name).layers)
    finally:
        checkout.docker("rmi", name)
    unpack_archive(folder / "base.tar", folder / "layout")
    return folder / "layout", count
