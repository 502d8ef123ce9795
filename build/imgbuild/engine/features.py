"""Try every feature that builds need, with an image of a few bytes."""

import secrets
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imgbuild.engine.bake import BakeTarget, BuiltImage, run_bake
from imgbuild.engine.buildx import ANSWER_SECONDS, Buildx, build_environment, check_buildx
from imgbuild.engine.client import Engine
from imgbuild.engine.failure import BuildFailedError, BuildStoppedError
from imgbuild.engine.progress import BakeEvent
from imgbuild.errors import MachineError
from imgbuild.process import run

#: In the name of everything the probe builds, to tell its cache from that of others.
MARK = "imgbuild-probe"

_PROGRAM = f"COPY --from=named /{MARK} /{MARK}"
_SEEING_IT = "--mount=type=secret,id=probe,required=true"
_MOUNTS = "--mount=type=cache,target=/cache --mount=type=bind,from=named,target=/bound"
_HEREDOC = (f"COPY <<EOF /{MARK}.text", "probe", "EOF")
_LINK = f"COPY --link --from=named /{MARK} /{MARK}.link"
#: Lines of a Dockerfile that use everything imgbuild's own ones use.
TOGETHER = (_PROGRAM, f'RUN {_SEEING_IT} {_MOUNTS} ["/{MARK}"]', *_HEREDOC, _LINK)
#: A feature → the lines that need it and as little else as possible.
FEATURES: Mapping[str, tuple[str, ...]] = {
    "named build contexts (--build-context)": (_PROGRAM,),
    "running a step (RUN) on the engine's network": (_PROGRAM, f'RUN ["/{MARK}"]'),
    "secrets (RUN --mount=type=secret)": (_PROGRAM, f'RUN {_SEEING_IT} ["/{MARK}"]'),
    "cache and bind mounts (RUN --mount)": (_PROGRAM, f'RUN {_MOUNTS} ["/{MARK}"]'),
    "here-documents (COPY <<EOF)": _HEREDOC,
    "linked layers (COPY --link)": (_LINK,),
}


@dataclass(frozen=True)
class MissingFeature:
    """A feature that builds here do not have, and what buildx said about it."""

    name: str
    reason: str


def missing_features(buildx: Buildx, host: str | None) -> tuple[MissingFeature, ...]:
    """Return the features that imgbuild needs and this engine lacks; empty if all work together.

    All of them are tried in one build, and one by one only if that fails. Image and build cache of
    the probe are removed again.

    Raises:
        MachineError: buildx or the engine cannot be used at all.

    """
    check_buildx(buildx, host)
    with tempfile.TemporaryDirectory(prefix="imgbuild-probe-") as name:
        folder = _prepared(Path(name))
        try:
            reason = _tried(buildx, host, folder, TOGETHER)
            return () if reason is None else _one_by_one(buildx, host, folder, reason)
        finally:
            _prune(buildx, host)


def _one_by_one(
    buildx: Buildx, host: str | None, folder: Path, together: str
) -> tuple[MissingFeature, ...]:
    tried = {name: _tried(buildx, host, folder, lines) for name, lines in FEATURES.items()}
    missing = tuple(MissingFeature(name, reason) for name, reason in tried.items() if reason)
    return missing or (MissingFeature("all features in one build", together),)


def _tried(buildx: Buildx, host: str | None, folder: Path, lines: tuple[str, ...]) -> str | None:
    """Build a Dockerfile and throw the image away; return why it failed, or ``None``."""
    text = "\n".join((f"FROM scratch AS {MARK}", "ARG NONCE", f"ENV {MARK}=$NONCE", *lines, ""))
    (folder / "Dockerfile").write_text(text, encoding="utf-8")
    try:
        built = run_bake(buildx, host, [_target(folder)], log=folder / "log", listener=_ignore)
    except BuildFailedError as error:
        return error.failure.error
    except BuildStoppedError as error:
        if error.failure.step:  # the engine answers, but cannot run this step
            return error.failure.error
        raise MachineError(f"{error.failure.error}. {error.failure.advice}".strip()) from error
    return _removed(host, built[MARK])


def _target(folder: Path) -> BakeTarget:
    """Return the probe; the nonce keeps BuildKit from answering from its cache."""
    return BakeTarget(
        name=MARK,
        context=folder / "context",
        dockerfile=folder / "Dockerfile",
        contexts={"named": str(folder / "named")},
        args={"NONCE": secrets.token_hex(8)},
        secrets=(f"id=probe,src={folder / 'secret'}",),
    )


def _removed(host: str | None, built: BuiltImage) -> str | None:
    engine = Engine(host)
    try:
        found = engine.inspect(built.image_id)
        if found is None:
            return f"the image was built but is not in the engine ({built.image_id})"
        engine.discard(built.image_id)
        return None
    finally:
        engine.close()


def _prune(buildx: Buildx, host: str | None) -> None:
    """Remove the probe's own build cache; that it fails is no reason to fail."""
    filtered = f"--filter=description~={MARK}"
    command = [str(buildx.path), "prune", "--builder=default", "--force", "--all", filtered]
    run(command, env=build_environment(host), timeout=ANSWER_SECONDS)


def _prepared(folder: Path) -> Path:
    """Make the build context, the named context with the program, and the secret."""
    (folder / "context").mkdir()
    (folder / "named").mkdir()
    program = folder / "named" / MARK
    program.write_bytes(_program())
    program.chmod(0o755)
    (folder / "secret").write_text("probe", encoding="utf-8")
    return folder


def _program() -> bytes:
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


def _ignore(_event: BakeEvent) -> None:
    """Nobody watches the probe."""
