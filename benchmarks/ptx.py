"""Compile the PTX in TensorFlow's wheels for newer GPUs; report failures and CPU time.

The driver compiles PTX when a kernel is first used. NVIDIA's assembler, `ptxas`, does the same
without a GPU. All PTX of the libraries in a wheel is extracted, including what `cuobjdump` does not
find by itself: the kernels of element-wise operations, which TensorFlow loads from its data
(`.rodata`). PTX that is in two libraries is compiled once.
"""

import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from measure import options, publish, table

#: A container of code for several GPUs: magic, version, length of this header, length of the rest.
#: Source: NVIDIA's fatbinary.h.
CONTAINER = struct.Struct("<IHHQ")
BEGIN = struct.pack("<IHH", 0xBA55ED50, 1, CONTAINER.size)
#: The sections from which TensorFlow's kernels are loaded.
KINDS = {".nv_fatbin": "kernels in CUDA C++", ".rodata": "element-wise operations"}
RELEASE = re.compile(r"tensorflow-([0-9.]+)-")
TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)
ERROR = re.compile(r"(?:error|fatal) +: (.*)")


@dataclass(frozen=True)
class Module:
    """PTX that `ptxas` compiles as a whole; ``kind`` is a value of `KINDS`."""

    kind: str
    text: str
    target: str


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a module: CPU seconds, and the error of `ptxas` if it failed."""

    seconds: float
    error: str


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cuobjdump", default="cuobjdump", help="of Debian's nvidia-cuda-toolkit")
    parser.add_argument("--ptxas", default="ptxas", help="of the package nvidia-cuda-nvcc-cu12")
    parser.add_argument(
        "--gpu", nargs=2, action="append", metavar=("WHEEL", "GPUS"), help="as in sm_100,sm_120"
    )
    chosen = parser.parse_args()
    rows = []
    for wheel, gpus in chosen.gpu or ():
        (release,) = RELEASE.findall(wheel)
        modules = read_modules(Path(wheel), chosen.cuobjdump)
        for gpu in gpus.split(","):
            compiled = compile_all(modules, chosen.ptxas, gpu)
            for kind in KINDS.values():
                pairs = [pair for pair in compiled if pair[0].kind == kind]
                rows.append((release, gpu, kind, *cells(pairs)))
                print(*rows[-1], sep=" | ", file=sys.stderr)
    head = (
        *("TensorFlow", "for", "what", "modules", "MB of PTX", "written for"),
        *("compiled", "CPU seconds", "longest", "refused, because"),
    )
    publish("ptx", table(head, rows), write=chosen.write)


def read_modules(wheel: Path, cuobjdump: str) -> list[Module]:
    """Return the PTX of a wheel's libraries, each once."""
    modules = {}
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if re.search(r"\.so(\.\d+)*$", member):
                library = Path(archive.extract(member, name))
                for module in read_library(library, cuobjdump):
                    modules[module.text] = module
                library.unlink()
    return [*modules.values()]


def read_library(library: Path, cuobjdump: str) -> Iterator[Module]:
    with library.open("rb") as file, tempfile.TemporaryDirectory() as name:
        elf = ELFFile(file)
        for section_name, kind in KINDS.items():
            section = elf.get_section_by_name(section_name)
            content = section.data() if section else b""
            at = content.find(BEGIN)
            while at >= 0:
                length = sum(CONTAINER.unpack_from(content, at)[2:])
                container = Path(name) / "container"
                container.write_bytes(content[at : at + length])
                command = [cuobjdump, "-xptx", "all", container.name]
                subprocess.run(command, check=True, capture_output=True, cwd=name)
                for path in Path(name).glob("*.ptx"):
                    text = path.read_text(encoding="utf-8")
                    yield Module(kind, text, TARGET.findall(text)[0])
                    path.unlink()
                at = content.find(BEGIN, at + length)


def compile_all(modules: Sequence[Module], ptxas: str, gpu: str) -> list[tuple[Module, Compiled]]:
    """Compile each module on one core; as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda module: compile_one(module, ptxas, gpu), modules)
        return list(zip(modules, done, strict=True))


def compile_one(module: Module, ptxas: str, gpu: str) -> Compiled:
    with tempfile.TemporaryDirectory() as name:
        source, log = Path(name) / "module.ptx", Path(name) / "log"
        source.write_text(module.text, encoding="utf-8")
        command = [ptxas, f"--gpu-name={gpu}", f"--output-file={name}/cubin", str(source)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        errors = ERROR.findall(log.read_text(encoding="utf-8")) or [f"exit {process.returncode}"]
    return Compiled(usage.ru_utime + usage.ru_stime, errors[0] if process.returncode else "")


def cells(pairs: Sequence[tuple[Module, Compiled]]) -> list[str]:
    targets = sorted({module.target for module, _ in pairs})
    right = [done.seconds for _, done in pairs if not done.error]
    errors = Counter(done.error for _, done in pairs if done.error)
    return [
        str(len(pairs)),
        f"{sum(len(module.text) for module, _ in pairs) / 1e6:.0f}",
        ", ".join(targets),
        str(len(right)),
        f"{sum(right):.0f}",
        f"{max(right, default=0):.0f}",
        "; ".join(f"{count}: {error}" for error, count in errors.items()) or "-",
    ]


if __name__ == "__main__":
    main()
