"""Every stand-in in real use, in containers of the stand-in base images. Needs an engine; minutes.

`pytest tests/standin`
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imgbuild.engine.client import Engine
from imgbuild.inputs.oci_layout import open_layout, write_archive
from imgbuild.project import find_project
from imgbuild.settings import LayoutBase, load_settings
from standin.__main__ import gateway, open_context, prepare
from standin.base_image import ARCHIVE
from standin.context import HERE, Context
from standin.nvidia import _cuda_pins, _pinned_releases
from standin.server import StandInServer, serve
from standin.workbench import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imgbuild.settings import Mirror, Settings

#: What the GPU wheels load, by CUDA release, as the linker's cache must have it.
WANTED = {
    "9.0": "libcublas.so.9.0 libcudart.so.9.0 libcudnn.so.7 libcufft.so.9.0 libcurand.so.9.0"
    " libcusolver.so.9.0 libnccl.so.2",
    "10.0": "libcublas.so.10.0 libcudart.so.10.0 libcudnn.so.7 libcufft.so.10.0 libcurand.so.10.0"
    " libcusolver.so.10.0 libcusparse.so.10.0 libnccl.so.2",
    "10.1": "libcublas.so.10 libcudart.so.10.1 libcudnn.so.7 libcufft.so.10 libcurand.so.10"
    " libcusolver.so.10 libcusparse.so.10 libnccl.so.2",
}
COMPILE = r"""
printf '%s\n' '#include <cuda_runtime.h>' '#include <cuda_fp16.h>' '#include <nccl.h>' \
    'int main() { int n; int e = cudaGetDeviceCount(&n); int v; ncclGetVersion(&v);' \
    'return !(e && !n && v == NCCL_VERSION_CODE); }' > /tmp/a.cc
g++-4.8 -std=c++11 -I/usr/local/cuda-$CUDA/include -L/usr/local/cuda-$CUDA/lib64 /tmp/a.cc \
    -o /tmp/a -lcudart -lnccl && /tmp/a
"""
HELLO = r"""
printf '%s\n' '#include <mpi.h>' 'int main(int c, char **v) { int r, s; MPI_Init(&c, &v);' \
    'MPI_Comm_rank(MPI_COMM_WORLD, &r);' \
    'MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); MPI_Finalize();' \
    'return s != SUM; }' > /tmp/hello.cc
"""


@dataclass(frozen=True)
class Lab:
    """The stand-ins at work: where they are, the server, the settings for them."""

    context: Context
    folder: Path
    server: StandInServer
    settings: Settings

    def run(self, os_name: str, script: str) -> str:
        """Run a script in a base image, with its archive and the downloads at hand; its output."""
        url = f"{self.server.url}/ubuntu"
        sources = f"set -eu; sed -i 's|{ARCHIVE}|{url}|' /etc/apt/sources.list\n"
        mounts = {
            "/site": self.folder / "www" / "anaconda",
            "/intel": self.folder / "www" / "intel",
        }
        keys = {f"/run/{name}.gpg": Path(str(mirror.keyring)) for name, mirror in self._apt()}
        volumes = [f"--volume={path.resolve()}:{at}:ro" for at, path in {**mounts, **keys}.items()]
        command = ["docker", "run", "--rm", *volumes, self._image(os_name), "bash", "-c"]
        done = subprocess.run(
            [*command, sources + script],
            env=environment(self.context), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def nvidia(self, os_name: str, key: str = "") -> str:
        """Return the lines that name NVIDIA's repositories, each with its key or the given one."""
        name = self.context.matrix.operating_systems[os_name].nvidia
        return "".join(
            f"echo 'deb [signed-by=/run/{key or site}.gpg] {mirror.url}{name}/x86_64 /'"
            " >> /etc/apt/sources.list.d/nvidia.list\n"
            for site, mirror in self._apt()
            if site != "ubuntu"
        )

    def _apt(self) -> list[tuple[str, Mirror]]:
        return [(name, mirror) for name, mirror in self.settings.mirrors.items() if mirror.keyring]

    def _image(self, os_name: str) -> str:
        base = self.settings.base[os_name]
        assert isinstance(base, LayoutBase)
        folder = Path(base.path)
        reference = open_layout(folder).reference
        engine = Engine(self.context.host)
        if engine.inspect(reference) is None:
            with tempfile.TemporaryDirectory() as scratch:
                archive = Path(scratch) / "base.tar"
                write_archive(folder, archive)
                with archive.open("rb") as stream:
                    engine.load(stream)
        engine.close()
        return reference


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    context = open_context(find_project(HERE))
    folder = tmp_path_factory.mktemp("standin")
    with serve(folder, gateway(context)) as server:
        settings = load_settings(prepare(context, folder, server.url))
        yield Lab(context, folder, server, settings)


INSTALL = "apt-get -qq update && apt-get -qq install -y --no-install-recommends"


@pytest.mark.parametrize("cuda", WANTED)
def test_cuda_installs_links_and_finds_no_device(lab: Lab, cuda: str) -> None:
    os_name = lab.context.matrix.cuda[cuda].os[-1]
    pins = [f"{name}={version}" for name, version in _cuda_pins(lab.context.matrix, cuda, os_name)]
    pins += [f"{n}={v}-1+cuda{cuda}" for n, v in _pinned_releases(lab.context.matrix)]
    script = lab.nvidia(os_name) + f"{INSTALL} g++-4.8 {' '.join(pins)} >/dev/null 2>&1\n"
    found = lab.run(os_name, f"{script} CUDA={cuda}; {COMPILE} ldconfig -p; ls /usr/local")
    assert {*WANTED[cuda].split()} <= {*found.split()}
    assert "libcuda.so.1" not in found  # a driver's, never a package's
    assert not found.endswith("cuda\n")  # as with NVIDIA's: the image makes this link


def test_apt_trusts_each_repositorys_own_key_only(lab: Lab) -> None:
    script = lab.nvidia("ubuntu-18.04", key="ubuntu")
    assert "NO_PUBKEY" in lab.run("ubuntu-18.04", f"{script} apt-get -q update 2>&1 || true")


@pytest.mark.parametrize("os_name", ["ubuntu-16.04", "ubuntu-18.04"])
def test_the_packages_of_the_matrix_install(lab: Lab, os_name: str) -> None:
    system = lab.context.matrix.operating_systems[os_name]
    assert system.pins.git
    names = [*system.packages.runtime, *system.packages.compiler]
    git = f"git=1:{system.pins.git.version}-*"
    out = lab.run(os_name, f"{INSTALL} {git} {' '.join(names)} >/dev/null 2>&1; git --version;"
                  " . /etc/os-release; echo $ID-$VERSION_ID; g++-4.8 -dumpversion")  # fmt: skip
    assert out.split()[-2:] == [os_name, "4.8.5"]
    assert lab.settings.standin
    assert lab.settings.standin.versions["git"] in out


def test_miniconda_makes_an_environment(lab: Lab) -> None:
    script = f"""
    {INSTALL} bzip2 >/dev/null 2>&1
    sh "$(find /site/miniconda/ -name '*.sh' | head -1)" -b -p /opt/miniconda >/dev/null
    printf '%s\\n' @EXPLICIT $(ls -d /site/pkgs/main/linux-64/*.tar.bz2 | sed 's|^|file://|') > /e
    /opt/miniconda/bin/conda create --offline --yes --no-default-packages -p /opt/python --file /e
    rm -rf /opt/miniconda
    /opt/python/bin/python -c 'import bz2, ctypes, lzma, readline, sqlite3, ssl, zlib, sys
    print(sys.version.split()[0], sys.prefix)'
    ! grep -r anaconda1 /opt/python
    """.replace("\n    ", "\n")
    assert lab.settings.standin
    python = lab.settings.standin.versions["python"]
    assert lab.run("ubuntu-18.04", script).split() == [python, "/opt/python"]


def test_intel_mpi_compiles_and_runs(lab: Lab) -> None:
    script = f"""
    {INSTALL} g++ libc6-dev cpio >/dev/null 2>&1
    mkdir /tmp/mpi && tar -xzf $(find /intel/ -name '*.tgz') -C /tmp/mpi --strip-components=1
    cd /tmp/mpi
    ! ./install.sh -s silent.cfg --arch=intel64 2>/dev/null
    sed -i s/^ACCEPT_EULA=decline/ACCEPT_EULA=accept/ silent.cfg
    ./install.sh -s silent.cfg --arch=intel64
    set +u; . /opt/intel/compilers_and_libraries/linux/mpi/intel64/bin/mpivars.sh
    {HELLO}
    mpicxx -DSUM=1 /tmp/hello.cc -o /tmp/two && mpirun -np 2 /tmp/two
    mpicxx -DSUM=0 /tmp/hello.cc -o /tmp/one && /tmp/one
    mpirun --version
    """.replace("\n    ", "\n")
    assert "Version 2021.8" in lab.run("ubuntu-16.04", script)


def test_what_is_served_was_asked_for(lab: Lab) -> None:
    lab.run("ubuntu-18.04", "apt-get -qq update")
    assert "/ubuntu/dists/bionic/InRelease" in lab.server.paths()
