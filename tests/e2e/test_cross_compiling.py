"""Horovod for arm64, compiled on a machine for amd64 without an emulator.

The stages of the image's system would run programs for arm64. In their place, the build gets the
files of the same packages, which `mmdebstrap` extracts without running anything.
"""

import os
import subprocess
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from imgbuild.build.bases import load_base
from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.image_build import export_stage
from imgbuild.build.targets import stage_target
from imgbuild.engine.types import AMD64
from imgbuild.inputs.bootstrap import KEYRINGS
from imgbuild.maintain.wheels import Library
from imgbuild.matrix.images import for_other_architecture
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from support.checkout import Checkout

NAME = "tf-2.15-cpu-debian"
#: What the compiler needs of the image's system: MPI with its headers, and Python's settings.
PACKAGES = "libopenmpi-dev,libpython3.11-stdlib"

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="elsewhere the compiler is no cross compiler"
)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Return the files of the packages for arm64, and no packages of MPI beside them."""
    root = tmp_path / "os"
    options = ["--variant=extract", "--architectures=arm64", f"--include={PACKAGES}"]
    keyring = f"--keyring={KEYRINGS['debian'][0]}"
    command = ["mmdebstrap", *options, keyring, "bookworm", str(root)]
    subprocess.run(command, check=True, capture_output=True)
    for part in ("out", "build"):
        (tmp_path / "mpi" / part).mkdir(parents=True)
    return root


def test_horovod_for_arm64_is_compiled_without_an_emulator(
    checkout: Checkout, system: Path, tmp_path: Path
) -> None:
    usual = find_image(load_matrix(checkout.project.matrix), NAME)
    image = for_other_architecture(usual)
    assert image
    with open_context(checkout.project, (image,), BuildOptions(), lambda _: None) as context:
        inputs = context.inputs
        load_base(inputs.build_bases[AMD64, image.os_name], context.engine)
        target = stage_target(image, "horovod-wheel", inputs, {}, context.project, machine=AMD64)
        contexts = {**target.contexts, "os": str(system), "mpi": str(system.with_name("mpi"))}
        contexts["base"] = str(system)  # otherwise a registry is asked; no stage uses it
        export_stage(replace(target, contexts=contexts), tmp_path / "wheel", context)
    (path,) = (tmp_path / "wheel").iterdir()
    assert path.name == "horovod-0.28.1-cp311-cp311-linux_aarch64.whl"
    with zipfile.ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if "mpi_lib" in name and name.endswith(".so"))
        content = wheel.read(name)
    assert name.endswith("mpi_lib.cpython-311-aarch64-linux-gnu.so")
    elf = ELFFile(BytesIO(content))
    assert elf["e_machine"] == "EM_AARCH64"
    (dynamic,) = elf.iter_sections("SHT_DYNAMIC")
    tags = {tag.entry.d_tag for tag in dynamic.iter_tags()}  # type: ignore[attr-defined]
    assert "DT_NEEDED" in tags
    assert not tags & {"DT_RPATH", "DT_RUNPATH"}
    library = Library(content)
    assert {"libmpi.so.40", "libtensorflow_framework.so.2"} <= library.needed
    assert tuple(map(int, library.glibc.split("."))) <= (2, 36), "the image has glibc 2.36"
    assert "PyInit_mpi_lib" in library.exported or "horovod_init" in library.exported
