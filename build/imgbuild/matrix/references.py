"""Checks that a schema cannot make: references exist, images have their pins, none is there twice.

The checks read the plain document, not the model, so that they also speak when the schema has found
faults elsewhere: a table or value of the wrong type is the schema's business and is passed over
here. Each yields faults with the place of the offending value and what would be allowed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from imgbuild.yaml_file import Fault, Location

#: The pins every image has, and those the gpu variant has beside them.
COMMON_PINS = ("python", "mpi", "git")
GPU_PINS = ("cuda", "cudnn", "nccl")
#: Pins that only a row has, since a stack has images of several.
ROW_PINS = ("cuda",)
#: Which table of the matrix a pin of a row or stack names a key of, and what to call the key.
PIN_TABLES = {
    "python": ("python", "Python"),
    "mpi": ("mpi", "MPI"),
    "horovod": ("horovod", "Horovod"),
    "cuda": ("cuda", "CUDA"),
}

Raw = Mapping[str, Any]


def find_faults(document: Any) -> list[Fault]:  # noqa: ANN401 - whatever YAML holds
    """Return every broken reference, missing pin and duplicate of the plain document."""
    raw = _mapping(document)
    rows = raw.get("images")
    images = [_mapping(row) for row in rows] if isinstance(rows, list) else []
    return [
        *_named(raw, "stacks", "stack", ("defaults",), "stack"),
        *(fault for name in _mapping(raw.get("stacks")) for fault in _stack(raw, name)),
        *(
            fault
            for name in _mapping(raw.get("operating_systems"))
            for fault in _pins(raw, ("operating_systems", name, "pins"))
        ),
        *_sources(raw),
        *_layers(raw),
        *(fault for index, row in enumerate(images) for fault in _row(raw, row, index)),
        *_duplicates(raw, images),
    ]


def _mapping(value: Any) -> Raw:  # noqa: ANN401 - whatever YAML holds
    return value if isinstance(value, dict) else {}


def _at(raw: Raw, location: Location) -> Any:  # noqa: ANN401 - whatever YAML holds
    value: Any = raw
    for part in location:
        if isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            value = _mapping(value).get(str(part))
    return value


def _version(value: Any) -> str | None:  # noqa: ANN401 - whatever YAML holds
    """Return a pin's version in either spelling, ``None`` if it has none."""
    found = value.get("version") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def _named(raw: Raw, table: str, kind: str, at: Location, key: str | int) -> Iterator[Fault]:
    """Yield a fault if the value of ``key`` at ``at`` is no key of ``table``."""
    value, known = _version(_at(raw, (*at, key))), raw.get(table)
    if table == "cuda" and known is None:  # the one table that may be left out
        known = {}
    if value is None or not isinstance(known, dict) or value in known:
        return
    listed = ", ".join(known) or "none"
    yield Fault((*at, key), f"no {kind} {value!r} in the matrix; there are: {listed}")


def _pins(raw: Raw, at: Location) -> Iterator[Fault]:
    for pin, (table, kind) in PIN_TABLES.items():
        yield from _named(raw, table, kind, at, pin)
        pinned = _mapping(_at(raw, (*at, pin)))
        if pinned.get("documented_exists") != "false":
            yield from _named(raw, table, kind, (*at, pin), "documented")
    yield from _miniconda(raw, at)


def _miniconda(raw: Raw, at: Location) -> Iterator[Fault]:
    version, sources = _version(_at(raw, (*at, "miniconda"))), _mapping(raw.get("sources"))
    if version is not None and sources and f"miniconda-{version}" not in sources:
        known = [name for name in sources if name.startswith("miniconda-")]
        listed = ", ".join(known) or "none"
        message = f"no source 'miniconda-{version}' in the matrix; there are: {listed}"
        yield Fault((*at, "miniconda"), message)


def _stack(raw: Raw, name: str) -> Iterator[Fault]:
    yield from _named(raw, "operating_systems", "operating system", ("stacks", name), "os")
    yield from _pins(raw, ("stacks", name, "pins"))


def _sources(raw: Raw) -> Iterator[Fault]:
    for table in ("python", "mpi"):
        for name, entry in _mapping(raw.get(table)).items():
            at: Location = (table, name)
            yield from _named(raw, "sources", "source", at, "source")
            yield from _systems(raw, entry, at)
    for name, entry in _mapping(raw.get("cuda")).items():
        yield from _systems(raw, entry, ("cuda", name))


def _systems(raw: Raw, entry: Any, at: Location) -> Iterator[Fault]:  # noqa: ANN401 - YAML
    listed = _mapping(entry).get("os")
    table, kind = "operating_systems", "operating system"
    if not isinstance(listed, list):
        yield from _named(raw, table, kind, at, "os")
        return
    for index in range(len(listed)):
        yield from _named(raw, table, kind, (*at, "os"), index)


def _row(raw: Raw, row: Raw, index: int) -> Iterator[Fault]:
    at: Location = ("images", index)
    yield from _named(raw, "tensorflow", "TensorFlow", at, "tensorflow")
    yield from _named(raw, "stacks", "stack", at, "stack")
    yield from _named(raw, "operating_systems", "operating system", at, "os")
    yield from _pins(raw, at)
    for variant in _variants(row):
        yield from _missing_pins(raw, row, variant, at)
        yield from _missing_distribution(raw, row, variant, at)


def _variants(row: Raw) -> list[str]:
    variants = row.get("variants")
    return [v for v in variants if isinstance(v, str)] if isinstance(variants, list) else []


def _missing_pins(raw: Raw, row: Raw, variant: str, at: Location) -> Iterator[Fault]:
    name = row.get("stack")
    stack = _mapping(_at(raw, ("stacks", str(name))))
    pins = _mapping(stack.get("pins"))
    system = str(row.get("os") or stack.get("os"))
    pinned = {*row, *pins, *_mapping(_at(raw, ("operating_systems", system, "pins")))}
    for pin in COMMON_PINS if stack else ():
        if pin not in pinned:
            yield Fault(at, f"pin {pin!r} is missing; set it here or in stacks.{name}.pins")
    for pin in GPU_PINS if variant == "gpu" else ():
        if pin not in (row if pin in ROW_PINS else pinned):
            yield Fault(at, f"pin {pin!r} is missing; the gpu variant needs it")


def _missing_distribution(raw: Raw, row: Raw, variant: str, at: Location) -> Iterator[Fault]:
    where = ("tensorflow", str(row.get("tensorflow")), "distribution")
    distributions = _at(raw, where)
    if isinstance(distributions, dict) and variant not in distributions:
        yield Fault((*at, "variants"), f"{'.'.join(where)} names no {variant} distribution")


def _duplicates(raw: Raw, images: list[Raw]) -> Iterator[Fault]:
    seen: dict[tuple[str, str, str, str | None], int] = {}
    for index, row in enumerate(images):
        variants = _variants(row)
        for variant in variants:
            minor = str(row.get("tensorflow")).rsplit(".", 1)[0]
            mpi = _other_mpi(raw, row)
            first = seen.setdefault((minor, str(row.get("stack")), variant, mpi), index)
            if first != index or variants.count(variant) > 1:
                what = f"TensorFlow {minor} {variant} on {row.get('stack')}"
                what = f"{what} with {mpi}" if mpi else what
                yield Fault(("images", index), f"{what} is already image {first + 1} of the list")
                break


def _other_mpi(raw: Raw, row: Raw) -> str | None:
    """Return the MPI flavour that the image's name says: none where it is the stack's own."""
    own = _version(row.get("mpi"))
    stack = _mapping(_at(raw, ("stacks", str(row.get("stack")))))
    system = _at(raw, ("operating_systems", str(row.get("os") or stack.get("os")), "pins"))
    usual = _mapping(stack.get("pins")).get("mpi") or _mapping(system).get("mpi")
    if own is None or own == _version(usual):
        return None
    return str(_at(raw, ("mpi", own, "flavour")))


def _layers(raw: Raw) -> Iterator[Fault]:
    """Yield a fault for each package that an earlier layer has already."""
    seen: dict[str, str] = {}
    for name, packages in _mapping(raw.get("package_layers")).items():
        for index, package in enumerate(packages if isinstance(packages, list) else ()):
            if isinstance(package, str) and seen.setdefault(package, name) != name:
                what = f"{package} is in the layer {seen[package]} already"
                yield Fault(("package_layers", name, index), what)
