"""Which PTX XLA writes for a GPU, and whether `ptxas` compiles it: TensorFlow, without a GPU.

ENVIRONMENT is a virtual environment with the lock of a GPU image:
`uv pip install --no-deps -r images/locks/tf-2.21.0-py3.11-gpu.txt`. XLA compiles a function for a
made-up GPU of each capability, on libraries that answer for CUDA and cuDNN (xla_libraries.c), and
with the `ptxas` of the environment.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from measure import options, publish, table

SOURCE = Path(__file__).with_name("xla_libraries.c")
PROGRAM = """
import tensorflow as tf
assert tf.config.list_physical_devices("GPU")
@tf.function(jit_compile=True)
def function(x):
    return tf.reduce_sum(tf.math.tanh(x) * 2 + 1, axis=1)
with tf.device("/GPU:0"):
    function(tf.ones((64, 64)))
print(tf.__version__)
"""
#: The functions of the driver and of NVML that TensorFlow looks up by name.
LOOKED_UP = re.compile(rb"(?<=\0)(?:cu[A-Z]|nvml[A-Z])[A-Za-z0-9]+(?:_v[0-9])?(?=\0)")
DEFINED = re.compile(r"^(?:int|size_t|const char \*|void \*\*) ?(\w+)\(", re.MULTILINE)
LAST_LINES = 3


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("capabilities", nargs="+", metavar="CAPABILITY", help="such as 12.0")
    chosen = parser.parse_args()
    environment = chosen.environment.resolve()
    with tempfile.TemporaryDirectory() as name:
        libraries = make_libraries(environment, Path(name))
        rows = [
            compile_function(environment, libraries, capability)
            for capability in chosen.capabilities
        ]
    head = ("TensorFlow", "capability", "version of the PTX", "written for", "outcome")
    publish("xla-ptx", table(head, rows), write=chosen.write, timed=False)


def make_libraries(environment: Path, folder: Path) -> Path:
    """Make the libraries, and return their folder."""
    (site,) = environment.glob("lib/python3.*/site-packages")
    tensorflow = b"".join(
        (site / "tensorflow" / name).read_bytes()
        for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
    )
    looked_up = {name.decode() for name in LOOKED_UP.findall(tensorflow)}
    (runtime,) = site.glob("nvidia/cuda_runtime/lib/libcudart.so.*")
    (dnn,) = site.glob("nvidia/cudnn/lib/libcudnn.so.*")
    make_library(folder / "libcuda.so.1", looked_up)
    (folder / "libnvidia-ml.so.1").symlink_to("libcuda.so.1")
    make_library(folder / runtime.name, exported(runtime))
    make_library(folder / dnn.name, exported(dnn))
    return folder


def exported(library: Path) -> set[str]:
    """Return the functions that a library exports."""
    command = ["nm", "--dynamic", "--defined-only", str(library)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" [Tt] (\w+)", printed))


def make_library(path: Path, functions: Iterable[str]) -> None:
    """Compile `SOURCE` with each other function, which returns 0."""
    source = SOURCE.read_text(encoding="utf-8")
    others = sorted({*functions} - {*DEFINED.findall(source)})
    code, versions = path.with_suffix(".c"), path.with_suffix(".map")
    lines = [f"int {name}(void) {{ return 0; }}\n" for name in others]
    code.write_text(source + "".join(lines), encoding="utf-8")
    versions.write_text(f"{path.name} {{ global: *; }};\n", encoding="utf-8")
    script = f"-Wl,-soname,{path.name},--version-script={versions}"
    command = ["gcc", "-shared", "-fPIC", "-w", script, "-o", str(path), str(code)]
    subprocess.run(command, check=True)


def compile_function(environment: Path, libraries: Path, capability: str) -> list[str]:
    """Return a row of the table: what XLA wrote for a capability, and how it ended."""
    (site,) = environment.glob("lib/python3.*/site-packages")
    folders = [str(libraries), *map(str, site.glob("nvidia/*/lib"))]
    with tempfile.TemporaryDirectory() as dump:
        variables = {
            **os.environ,
            "CAPABILITY": capability,
            "LD_LIBRARY_PATH": ":".join(folders),
            "PATH": f"{site}/nvidia/cuda_nvcc/bin:{os.environ['PATH']}",
            "XLA_FLAGS": f"--xla_dump_to={dump} --xla_gpu_autotune_level=0",
        }
        done = subprocess.run(
            [environment / "bin" / "python", "-c", PROGRAM],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        ptx = "".join(path.read_text(encoding="utf-8") for path in Path(dump).glob("*.ptx"))
    if done.returncode:
        sys.stderr.write(done.stderr)
    said = " ".join(done.stderr.splitlines()[-LAST_LINES:])
    outcome = "compiled" if done.returncode == 0 else f"exit {done.returncode}: {said}"
    version = " ".join(re.findall(r"^\.version (\S+)", ptx, re.MULTILINE))
    target = " ".join(re.findall(r"^\.target (\S+)", ptx, re.MULTILINE))
    release = re.findall(r"tensorflow-(\S+)\.dist-info", " ".join(map(str, site.iterdir())))
    return [*release, capability, version, target, outcome]


if __name__ == "__main__":
    main()
