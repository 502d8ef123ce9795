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

#: Part of every name in the probe's build, by which its build cache is found and removed.
MARK = "imgbuild-probe"
#: A Linux program for x86-64 that does nothing: the header of an ELF file, the header of a segment,
#: and "push 60; pop rax; xor edi, edi; syscall". The probe needs it because ``FROM scratch`` has no
#: shell, and this machine may not have a base image yet.
EXIT_PROGRAM = bytes.fromhex(
    "7f454c4602010100000000000000000002003e00010000007800400000000000"
    "40000000000000000000000000000000000000004000380001000000000000000"
    "1000000050000000000000000000000000040000000000000004000000000007f"
    "000000000000007f0000000000000000100000000000006a3c5831ff0f05"
)
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


def broken_feature(buildx: Buildx) -> str | None:
    """Build the probe; return the step that failed and its error, or None if all features work.

    The probe's image and build cache are removed afterwards.

    MachineError: buildx or the engine cannot be used at all.
    """
    with tempfile.TemporaryDirectory(prefix="imgbuild-probe-") as name:
        folder = Path(name)
        target, log = _target(folder), folder / "log"
        try:
            image_id, _ = build_image(buildx, target, log=log)
            with closing(Engine(buildx.host)) as engine:
                if engine.inspect(image_id) is None:
                    return f"the image was built but is not in the engine ({image_id})"
                engine.discard(image_id)
                return None
        except BuildFailedError as error:
            if error.fault and error.fault.of_machine and not error.step:
                raise MachineError(f"{error.cause}. {error.fault.advice}") from error
            return f"{error.step}: {error.cause}" if error.step else error.cause
        finally:
            forget_cache(buildx, f"description~={MARK}")


def _target(folder: Path) -> BuildTarget:
    for context in ("context", "named"):
        (folder / context).mkdir()
    program = folder / "named" / MARK
    program.write_bytes(EXIT_PROGRAM)
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
    )
