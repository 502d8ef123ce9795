"""Load ``matrix.yaml``, and report all its faults at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.yaml_file import Fault, Location, check, read_document
from imgbuild.matrix.evidence import read_evidence
from imgbuild.matrix.images import all_images, minor_of, parts_of, resolve_image
from imgbuild.matrix.model import NONE, Matrix
from imgbuild.matrix.pins import NVIDIA
from imgbuild.matrix.rules import find_rule_faults
from imgbuild.matrix.schema import version_note
from imgbuild.matrix.selection import normalize_alias
from imgbuild.matrix.tags import find_tag_faults

#: Locations of values that name an entry of a table, with the table and the word for an entry in
#: messages. ``*`` matches every key or index. Rows, stacks and operating systems also have pins.
_OS = ("operating_systems", "operating system")
_REFERENCES: dict[Location, tuple[str, str]] = {
    ("defaults", "stack"): ("stacks", "stack"),
    ("stacks", "*", "os"): _OS,
    ("python", "*", "source"): ("sources", "source"),
    ("python", "*", "os"): _OS,
    ("mpi", "*", "source"): ("sources", "source"),
    ("mpi", "*", "os"): _OS,
    ("mpi", "*", "os", "*"): _OS,
    ("cuda", "*", "os", "*"): _OS,
    ("images", "*", "tensorflow"): ("tensorflow", "TensorFlow"),
    ("images", "*", "stack"): ("stacks", "stack"),
    ("images", "*", "os"): _OS,
}
_PINS = {
    "python": ("python", "Python"),
    "mpi": ("mpi", "MPI"),
    "horovod": ("horovod", "Horovod"),
    "cuda": ("cuda", "CUDA"),
    "miniconda": ("sources", "source"),  # the entry is named miniconda-VERSION
}
_PINNED: tuple[Location, ...] = (
    ("images", "*"),
    ("stacks", "*", "pins"),
    ("operating_systems", "*", "pins"),
)


def load_matrix(path: Path) -> Matrix:
    """Return the validated matrix, with the evidence of ``images/evidence.json``.

    InputError: the matrix has faults, which are listed with ``matrix.yaml:LINE:COLUMN``; or the
    evidence cannot be read.
    """
    document, project = read_document(path), Project(path.parent)
    matrix, faults = check(document, Matrix)
    # Check the plain document, so that broken references are reported even if the schema fails.
    faults += _find_broken_references(document.value)
    if matrix:
        matrix = matrix.with_evidence(read_evidence(project.evidence))
        faults += [
            *_find_image_faults(matrix),
            *_find_default_faults(matrix),
            *_find_layer_faults(matrix),
        ]
        parts_by_image = {image.name: parts_of(image) for image in all_images(matrix)}
        faults += [*find_rule_faults(matrix), *find_tag_faults(matrix, parts_by_image)]
        faults += _find_alias_faults(matrix)
        faults += _find_upstream_faults(matrix, project.keyrings)
    if matrix is None or faults:
        error = document.reject(faults)
        note = version_note(path.parent)
        raise InputError(f"{error}{note}")
    return matrix


def _find_broken_references(document: Any) -> Iterator[Fault]:  # noqa: ANN401 - whatever YAML holds
    """Yield names that no table has. The schema reports values of a wrong type."""
    tables: dict[str, Any] = document if isinstance(document, dict) else {}
    references = dict(_REFERENCES)
    for place in _PINNED:
        references |= {(*place, pin): reference for pin, reference in _PINS.items()}
    for pattern, (table, kind) in references.items():
        prefix = "miniconda-" if pattern[-1] == "miniconda" else ""
        known = tables.get(table, {} if table == "cuda" else None)  # cuda is optional
        if not isinstance(known, dict):
            continue
        for at, value in _find_names(document, pattern):
            without = pattern[-1] == "horovod" and value == NONE
            if f"{prefix}{value}" not in known and not without:
                names = [name for name in known if name.startswith(prefix)]
                listed = ", ".join(names) or "none"
                message = f"no {kind} {prefix + value!r} in the matrix; known: {listed}"
                yield Fault(at, message)


def _find_names(document: Any, pattern: Location) -> Iterator[tuple[Location, str]]:  # noqa: ANN401
    """Yield the name at each location that matches, as a plain value or as a pin's version."""
    for at, value in _find_values(document, pattern):
        name = value.get("version") if isinstance(value, dict) else value
        if isinstance(name, str):
            yield at, name


def _find_values(
    value: Any,  # noqa: ANN401 - whatever YAML holds
    pattern: Location,
    at: Location = (),
) -> Iterator[tuple[Location, Any]]:
    """Yield each value whose location matches the pattern, with its location."""
    if not pattern:
        yield at, value
    elif isinstance(value, dict | list):
        first, rest = pattern[0], pattern[1:]
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            if first in {"*", key}:
                yield from _find_values(inner, rest, (*at, key))


def _find_image_faults(matrix: Matrix) -> Iterator[Fault]:
    """Yield missing pins of images, and images that an earlier row already has."""
    first: dict[str, int] = {}
    if not matrix.uv.arm64 and any("arm64" in row.architectures for row in matrix.images):
        yield Fault(("uv",), "`arm64` is missing: the sha256 of uv's wheel for arm64")
    for index, row in enumerate(matrix.images):
        for place, variant in enumerate(row.variants):
            try:
                name = resolve_image(matrix, row, variant).name
            except KeyError:  # a broken reference, which is reported already
                continue
            except LookupError as error:
                yield Fault(("images", index), f"{error} (for the {variant} variant)")
                continue
            if row.is_for(variant, "arm64"):
                try:
                    resolve_image(matrix, row, variant, "arm64")
                except LookupError as error:
                    yield Fault(("images", index), f"{error} (for arm64)")
            is_repeated = variant in row.variants[:place]
            if first.setdefault(name, index) != index or is_repeated:
                message = f"{name} is already in entry {first[name] + 1} of images; remove one"
                yield Fault(("images", index), message)


def _find_default_faults(matrix: Matrix) -> Iterator[Fault]:
    """Yield the default TensorFlow if it is neither the minor nor the release of any row."""
    version = matrix.defaults.tensorflow
    releases = [row.tensorflow for row in matrix.images]
    minors = dict.fromkeys(map(minor_of, releases))
    if version and version not in {*releases, *minors}:
        listed = ", ".join(minors)
        message = f"no image of TensorFlow {version!r} in the matrix; known: {listed}"
        yield Fault(("defaults", "tensorflow"), message)


def _find_upstream_faults(matrix: Matrix, keyrings: Path) -> Iterator[Fault]:
    """Yield missing keyring files, and what images with CUDA from apt lack in the matrix."""
    systems = dict.fromkeys(image.os_name for image in all_images(matrix) if image.apt_cuda)
    for name in systems:
        if matrix.operating_systems[name].nvidia is None:
            message = f"missing key 'nvidia': set NVIDIA's name for {name}, which has GPU images"
            yield Fault(("operating_systems", name), message)
    needed = dict.fromkeys(NVIDIA.values()) if systems else {}
    for name in needed:
        upstream = matrix.upstreams.get(name)
        if upstream is None or upstream.url is None or upstream.keyring is None:
            message = f"upstreams.{name} needs a url and a keyring, because there are GPU images"
            yield Fault(("upstreams", name), message)
    for name, upstream in matrix.upstreams.items():
        if upstream.keyring and not (keyrings / upstream.keyring.file).is_file():
            message = f"no file {upstream.keyring.file} in images/files/keyrings"
            yield Fault(("upstreams", name, "keyring", "file"), message)


def _find_layer_faults(matrix: Matrix) -> Iterator[Fault]:
    """Yield packages that an earlier layer already has."""
    seen: dict[str, str] = {}
    for name, packages in matrix.package_layers.items():
        for index, package in enumerate(packages):
            if seen.setdefault(package, name) != name:
                message = f"{package} is already in the layer {seen[package]}"
                yield Fault(("package_layers", name, index), message)


def _find_alias_faults(matrix: Matrix) -> Iterator[Fault]:
    """Yield aliases that another image already has."""
    seen = {image.name: image.name for image in all_images(matrix)}
    for name, aliases in matrix.aliases.items():
        for index, alias in enumerate(aliases):
            owner = seen.setdefault(normalize_alias(alias), name)
            if owner != name:
                yield Fault(("aliases", name, index), f"{alias!r} already names {owner}")
