"""Render Dockerfiles, write them and compare them with the committed files."""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import zip_longest
from pathlib import Path
from traceback import extract_tb

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import write_texts
from imgbuild.core.project import Project
from imgbuild.core.user_folders import cache_dir
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.dockerfile.variables import template_variables
from imgbuild.locks import requirement_rules
from imgbuild.locks.constraints import render_constraints
from imgbuild.locks.lockfile import FOLDER, package_layers
from imgbuild.matrix.gpus import gpu_facts
from imgbuild.matrix.images import (
    Image,
    for_amd64,
    for_other_architecture,
    with_other_architectures,
)
from imgbuild.matrix.schema import version_note

DOCKERFILE = "Dockerfile"
#: The constraints, in the folder of the Dockerfile.
CONSTRAINTS = "constraints.txt"
ARM64_CONSTRAINTS = "constraints-arm64.txt"
#: What the check at container start compares a GPU with, in the same folder.
GPU_FACTS = "gpu.json"
_OF_IMAGE = (DOCKERFILE, CONSTRAINTS, ARM64_CONSTRAINTS, GPU_FACTS)
_SHA256_BYTES = 32
#: Maximum width of a line with packages, variables or labels; only a long word exceeds it.
WIDTH = 130


def render_dockerfile(image: Image, templates: Path) -> Dockerfile:
    """Return the Dockerfile of the image and of the same image for the other architecture.

    ``templates`` must be next to the folder of locks.

    InputError: the matrix, a lock or a template does not allow it.
    """
    values = template_variables(for_amd64(image), templates.parent / "locks")
    try:
        text = template_environment(templates).get_template("Dockerfile.j2").render(values)
    except Exception as error:  # code in a template may raise anything
        # For every kind of error, Jinja adds the lines of the templates to the traceback.
        frames = extract_tb(error.__traceback__)
        position = "Dockerfile.j2"
        for frame in frames:
            path = Path(frame.filename)
            if path.is_relative_to(templates):
                position = f"{path.relative_to(templates)}:{frame.lineno}"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        if not os.access(templates, os.R_OK | os.X_OK):  # Jinja reports a missing template instead
            reason = "you have no permission to read this folder"
        note = version_note(templates.parents[1])
        raise InputError(
            f"images/templates/{position}: {reason} (for {image.name}).{note}"
        ) from error
    return Dockerfile(text.rstrip("\n") + "\n")


def own_dockerfile(image: Image, templates: Path) -> Dockerfile:
    """Return the image's Dockerfile for its architecture; the errors are as in the above."""
    return render_dockerfile(image, templates).for_architecture(image.architecture)


def committed_dockerfile(image: Image, project: Project) -> Dockerfile:
    """Return the image's committed Dockerfile for its architecture.

    InputError: the Dockerfile or a file beside it differs from the rendered text.
    """
    path = dockerfile_path(image, project.dockerfiles)
    rendered = render_dockerfile(image, project.templates)
    texts = {path: rendered.text, **_render_beside(image, path, project.locks)}
    for file, text in texts.items():
        if not file.is_file() or file.read_bytes() != text.encode():
            raise InputError(
                f"{file.relative_to(project.root)} is missing or differs from what matrix.yaml and "
                "images/templates produce. Run `imgbuild render` and read the diff, or use the "
                "imgbuild version that wrote it (`imgbuild --version`), then build."
            )
    return rendered.for_architecture(image.architecture)


def dockerfile_path(image: Image, folder: Path) -> Path:
    return folder / for_amd64(image).name / DOCKERFILE


def constraints_path(image: Image, folder: Path) -> Path:
    name = CONSTRAINTS if image.architecture == "amd64" else ARM64_CONSTRAINTS
    return dockerfile_path(image, folder).with_name(name)


def render_all(images: Iterable[Image], templates: Path, folder: Path) -> dict[Path, str]:
    """Return the texts of all Dockerfiles, constraints and lock layers, by path."""
    texts = {}
    locks = templates.parent / "locks"
    for image in images:
        path = dockerfile_path(image, folder)
        texts[path] = render_dockerfile(image, templates).text
        texts |= _render_beside(image, path, locks)
        for own in with_other_architectures([image]):
            texts |= {locks / layer.file_name: layer.text for layer in package_layers(own, locks)}
    return texts


def _render_beside(image: Image, path: Path, locks: Path) -> dict[Path, str]:
    """Return the texts of the files beside an image's Dockerfile, by path."""
    image = for_amd64(image)
    texts = {path.with_name(CONSTRAINTS): render_constraints(image, locks)}
    if arm64 := for_other_architecture(image):
        texts[path.with_name(ARM64_CONSTRAINTS)] = render_constraints(arm64, locks)
    if image.cuda:
        texts[path.with_name(GPU_FACTS)] = json.dumps(gpu_facts(image, image.cuda), indent=1) + "\n"
    return texts


def render_rules() -> str:
    """Return the module `requirement_rules` for images; it imports `packaging` from pip."""
    text = Path(requirement_rules.__file__).read_text(encoding="utf-8")
    return re.sub(r"^from packaging", "from pip._vendor.packaging", text, flags=re.MULTILINE)


def write_all(rendered: Mapping[Path, str], folder: Path) -> list[Path]:
    """Write changed files and delete unused ones, all or nothing; return the changed paths."""
    stale = _find_stale(rendered, folder)
    changed = write_texts(rendered, stale)
    for path in stale:
        if path.name in _OF_IMAGE:
            with suppress(OSError):  # the folder has other files
                path.parent.rmdir()
    return changed


def find_drift(rendered: Mapping[Path, str], folder: Path) -> list[str]:
    """Return one paragraph per file that differs, with its path and first differing line."""
    drifted = [path for path, text in rendered.items() if _read(path) != text]
    return [
        *(_describe_difference(path, _read(path), rendered[path]) for path in drifted),
        *(f"{path}: belongs to no image of the matrix" for path in _find_stale(rendered, folder)),
    ]


def _describe_difference(path: Path, committed: str | None, rendered: str) -> str:
    if committed is None:
        return f"{path}: is missing"
    sides = committed.splitlines(), rendered.splitlines()
    pairs = zip_longest(*sides, fillvalue="(end of file)")
    for number, (old, new) in enumerate(pairs, 1):
        if old != new:
            return f"{path}:{number}: differs\n  committed: {old:.1000}\n  rendered:  {new:.1000}"
    return f"{path}: differs in line ends only"


def _find_stale(rendered: Mapping[Path, str], folder: Path) -> list[Path]:
    """Return Dockerfiles and constraints that belong to no image, and layers of no lock."""
    existing = {path for name in _OF_IMAGE for path in folder.glob(f"*/{name}")}
    for layers in {path.parent for path in rendered if path.parent.name == FOLDER}:
        existing.update(layers.iterdir())
    return sorted(existing - {*rendered})


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


@cache
def template_environment(*folders: Path) -> Environment:
    environment = Environment(  # noqa: S701 - Dockerfiles are not HTML; scalars.py keeps them safe
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        optimized=False,  # a filter may change, so cached templates must not contain its results
    )
    with suppress(OSError, MachineError):  # without a cache, compile the templates each time
        (compiled := cache_dir() / "templates").mkdir(exist_ok=True)
        environment.bytecode_cache = _CompiledTemplates(str(compiled))
    environment.filters["shell_word"] = shlex.quote
    environment.filters["wrapped"] = _wrap_words
    return environment


class _CompiledTemplates(FileSystemBytecodeCache):
    """A cache of compiled templates: compiling them takes longer than rendering one image.

    Each file begins with its sha256, so that damaged files are compiled again.
    """

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return a key without the file's path, which may not be valid text.

        Jinja compares the checksum of the source anyway.
        """
        del filename
        return super().get_cache_key(name)

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            kept = Path(self._get_cache_filename(bucket)).read_bytes()
            if kept[:_SHA256_BYTES] == hashlib.sha256(kept[_SHA256_BYTES:]).digest():
                bucket.bytecode_from_string(kept[_SHA256_BYTES:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        content, path = bucket.bytecode_to_string(), Path(self._get_cache_filename(bucket))
        with suppress(OSError):  # the folder belongs to another user, or the disk is full
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(hashlib.sha256(content).digest() + content)
            part.replace(path)


def _wrap_words(words: Iterable[str], before: int, indent: int = 4) -> str:
    """Wrap words into lines joined by backslashes; the first line begins at column ``before``.

    Words are never broken.
    """
    lines, room = [""], WIDTH - len(" \\") - before
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
            room = WIDTH - len(" \\") - indent
        lines[-1] += f" {word}" if lines[-1] else word
    return f" \\\n{' ' * indent}".join(lines)
