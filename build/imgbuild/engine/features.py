"""Try every feature that builds need, with an image of a few bytes."""

import secrets
import struct
import tempfile
from contextlib import closing
from pathlib import Path

from imgbuild.engine.bake import BakeTarget, run_bake
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import ANSWER_SECONDS, Buildx, build_environment
from imgbuild.engine.failure import BuildFailedError
from imgbuild.errors import MachineError
from imgbuild.process import run

#: In the name of everything the probe builds, to tell its cache from that of others.
MARK = "imgbuild-probe"
#: A named build context, secrets, mounts, a step on the engine's network, a here-document and a
#: linked layer: everything that imgbuild's own Dockerfiles use.
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


def broken_feature(buildx: Buildx, host: str | None) -> str | None:
    """Return the step and the error in which a build that uses all features ends, or ``None``.

    Image and build cache of the probe are removed again.

    Raises:
        MachineError: buildx or the engine cannot be used at all.

    """
    with tempfile.TemporaryDirectory(prefix="imgbuild-probe-") as name:
        folder = Path(name)
        target, log = _target(folder), folder / "log"
        try:
            built = run_bake(buildx, host, [target], log=log, listener=lambda _event: None)
            image_id = built[MARK].image_id
            with closing(Engine(host)) as engine:
                if engine.inspect(image_id) is None:
                    return f"the image was built but is not in the engine ({image_id})"
                engine.discard(image_id)
                return None
        except BuildFailedError as error:
            failure = error.failure
            if failure.fault and failure.fault.of_machine and not failure.step:
                raise MachineError(f"{failure.error}. {failure.fault.advice}") from error
            return f"{failure.step}: {failure.error}" if failure.step else failure.error
        finally:
            filtered = f"--filter=description~={MARK}"
            command = [str(buildx.path), "prune", "--builder=default", "--force", "--all", filtered]
            run(command, env=build_environment(host), timeout=ANSWER_SECONDS)


def _target(folder: Path) -> BakeTarget:
    for context in ("context", "named"):
        (folder / context).mkdir()
    program = folder / "named" / MARK
    program.write_bytes(exit_program())
    program.chmod(0o755)
    (folder / "secret").write_text("probe", encoding="utf-8")
    (folder / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
    return BakeTarget(
        name=MARK,
        context=folder / "context",
        dockerfile=folder / "Dockerfile",
        contexts={"named": str(folder / "named")},
        args={"NONCE": secrets.token_hex(8)},  # keeps BuildKit from answering from its cache
        secrets=(f"id=probe,src={folder / 'secret'}",),
    )


def exit_program() -> bytes:
    """Return a Linux program for x86-64 that does nothing: an ELF header and ``exit(0)``.

    ``FROM scratch`` has no shell, and a base image may not be there yet.
    """
    code = bytes.fromhex("6a3c5831ff0f05")  # push 60; pop rax; xor edi, edi; syscall
    size, start = 64 + 56 + len(code), 0x400000
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, 62, 1, start + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 4096)
    return header + segment + code
