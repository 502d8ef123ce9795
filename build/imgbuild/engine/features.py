"""Try every feature that builds need, by building an image of a few bytes."""

import secrets
import tempfile
from contextlib import closing
from pathlib import Path

from imgbuild.core.errors import MachineError
from imgbuild.engine.build import BuildTarget, build_image, forget_cache
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.failure import BuildFailedError
from imgbuild.engine.types import AMD64, ARM64

#: Part of every name in the probe's build, by which its build cache is found and removed.
MARK = "imgbuild-probe"
#: The exit code of the probe's program if the processor, or its emulation, has no AVX.
NO_AVX = 88
#: A Linux program for x86-64: the header of an ELF file, the header of a segment, and code that
#: asks the processor itself for AVX: CPUID (leaf 1, ECX) has AVX (bit 28) and XGETBV (OSXSAVE, bit
#: 27), and XGETBV says that the system saves the registers of AVX (XCR0, bits 1 and 2). It exits
#: with 0, or with `NO_AVX`. A file like /proc/cpuinfo would show the flags of the machine that
#: emulates. The probe brings its own program because ``FROM scratch`` has no shell, and there may
#: be no base image yet.
#: Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 14.3.
PROBE_PROGRAM = bytes.fromhex(
    "7f454c4602010100000000000000000002003e00010000007800400000000000"
    "4000000000000000000000000000000000000000400038000100000000000000"
    "0100000005000000000000000000000000004000000000000000400000000000"
    "a000000000000000a0000000000000000010000000000000"
    "b801000000"  # mov eax, 1
    "0fa2"  # cpuid
    "f7d1"  # not ecx
    "bf58000000"  # mov edi, NO_AVX
    "f7c100000018"  # test ecx, bits 27 and 28
    "750d"  # jnz, to the exit
    "31c9"  # xor ecx, ecx
    "0f01d0"  # xgetbv
    "f7d0"  # not eax
    "a806"  # test al, bits 1 and 2
    "7502"  # jnz, to the exit
    "31ff"  # xor edi, edi
    "6a3c580f05"  # push 60; pop rax; syscall: exit(edi)
)
#: The same for arm64, where every processor can run TensorFlow: a program that exits with 0.
#: Source: ELF for the Arm 64-bit Architecture (e_machine 183); Linux, include/uapi/asm-generic.
ARM64_PROGRAM = bytes.fromhex(
    "7f454c460201010000000000000000000200b700010000007800400000000000"
    "4000000000000000000000000000000000000000400038000100000000000000"
    "0100000005000000000000000000000000004000000000000000400000000000"
    "840000000000000084000000000000000000010000000000"
    "000080d2"  # mov x0, 0
    "a80b80d2"  # mov x8, 93
    "010000d4"  # svc 0: exit(x0)
)
_PROGRAMS = {AMD64: PROBE_PROGRAM, ARM64: ARM64_PROGRAM}
_WITHOUT_AVX = (
    "The processor that builds run on has no AVX, which TensorFlow's wheels require: TensorFlow "
    "would end with `Illegal instruction`. Emulators often have no AVX, for example on a Mac with "
    "an ARM processor. On such a machine, use --platform linux/arm64, for CPU images of newer "
    "TensorFlow (`imgbuild list`). For other images, use a machine with AVX. A virtual machine "
    "needs the CPU model of its host."
)
_OTHER_MACHINE = {
    AMD64: (
        "Builds can run no program for linux/amd64. Use an x86-64 machine, or an emulator with "
        "AVX; or use --platform linux/arm64, for CPU images of newer TensorFlow (`imgbuild list`)."
    ),
    ARM64: (
        "Builds can run no program for linux/arm64. Use an ARM machine or a builder on one "
        "(--builder), or install an emulator on the engine's machine: `sudo apt-get install -y "
        "qemu-user-static binfmt-support`."
    ),
}
#: Everything that imgbuild's own Dockerfiles use: a named build context, secrets, mounts, a step on
#: the engine's network, a here-document and a linked layer.
_DOCKERFILE = f"""\
FROM scratch AS {MARK}
ARG NONCE
ENV {MARK}=$NONCE
COPY --from=named /{MARK} /{MARK}
RUN --mount=type=secret,id=probe,required=true --mount=type=cache,target=/cache \
    --mount=type=bind,from=named,target=/bound ["/{MARK}"]
COPY <<EOF /{MARK}.text
probe
EOF
COPY --link --from=named /{MARK} /{MARK}.link
"""


def broken_feature(buildx: Buildx, platform: str = AMD64) -> str | None:
    """Build the probe; return the step that failed and its error, or None if all features work.

    The probe is for ``platform``, which can be another than the builder's if that is emulated.

    The probe's image and build cache are removed afterwards.

    MachineError: buildx or the engine cannot be used at all, or cannot run TensorFlow's programs.
    """
    with tempfile.TemporaryDirectory(prefix="imgbuild-probe-") as name:
        folder = Path(name)
        target, log = _target(folder, platform), folder / "log"
        try:
            image_id, _ = build_image(buildx, target, log=log)
            with closing(Engine(buildx.host)) as engine:
                if engine.inspect(image_id) is None:
                    return f"the image was built but is not in the engine ({image_id})"
                engine.discard(image_id)
                return None
        except BuildFailedError as error:
            if error.cause.endswith(f"exit code: {NO_AVX}"):
                raise MachineError(_WITHOUT_AVX) from error
            if any("exec format error" in line.lower() for line in (error.cause, *error.tail)):
                raise MachineError(_OTHER_MACHINE[platform]) from error
            if error.fault and error.fault.of_machine and not error.step:
                raise MachineError(f"{error.cause}. {error.fault.advice}") from error
            return f"{error.step}: {error.cause}" if error.step else error.cause
        finally:
            forget_cache(buildx, f"description~={MARK}")


def _target(folder: Path, platform: str) -> BuildTarget:
    for context in ("context", "named"):
        (folder / context).mkdir()
    program = folder / "named" / MARK
    program.write_bytes(_PROGRAMS[platform])
    program.chmod(0o755)
    (folder / "secret").write_text("probe", encoding="utf-8")
    (folder / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
    return BuildTarget(
        name=MARK,
        context=folder / "context",
        dockerfile=folder / "Dockerfile",
        contexts={"named": str(folder / "named")},
        args={"NONCE": secrets.token_hex(8)},  # so that no step comes from BuildKit's cache
        secrets={"probe": folder / "secret"},
        platform=platform,
    )
