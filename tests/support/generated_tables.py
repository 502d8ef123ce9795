"""The parts of the documentation that are written from the matrix and the command line."""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import grimp
from pydantic import BaseModel
from typer.main import get_command

from imgbuild.cli import app, register
from imgbuild.core.settings import Settings
from imgbuild.core.yaml_file import find_models
from imgbuild.dockerfile.labels import DESCRIPTIONS, EXTENSION_DESCRIPTIONS
from imgbuild.matrix.gpus import GENERATIONS, gpu_support
from imgbuild.matrix.images import Image, all_images, planned_tags
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rules import parse_numbers
from support.project_copy import ROOT

#: The pages for people who use imgbuild.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
TAGGED = (
    "tf-2.2-gpu-ubuntu",
    "tf-1.12-gpu-ubuntu",
    "tf-2.2-cpu-debian",
    "tf-2.2-cpu-debian-intelmpi",
)


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") + "\n" for cells in lines)


def _versions(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _stacks(matrix: Matrix) -> str:
    stacks = sorted(matrix.stacks, key=lambda stack: stack != matrix.defaults.stack)
    columns = [[i for i in all_images(matrix) if i.stack == stack] for stack in stacks]
    heads = [f"`{s}`{', the default' if s == matrix.defaults.stack else ''}" for s in stacks]
    facts = (
        ("TensorFlow on CPUs", lambda found: _minors(found, "cpu")),
        ("TensorFlow on GPUs", lambda found: _minors(found, "gpu")),
        ("GPUs", _gpus),
        ("Python", lambda found: _each(found, "python")),
        ("security updates", _support),
    )
    rows = ((name, *(fact(column) for column in columns)) for name, fact in facts)
    return table(("", *heads), rows)


def _minors(images: Iterable[Image], variant: str) -> str:
    found = sorted(
        (i for i in images if i.variant == variant), key=lambda i: parse_numbers(i.tensorflow)
    )
    return _versions([i.minor for i in found])


def _each(images: Iterable[Image], component: str) -> str:
    """Return the minor versions of a component, the oldest first."""
    found = {i.keys[component] for i in images if component in i.keys}
    minors = {re.sub(r"^(\d+\.\d+)\.\S+", r"\1", version): None for version in found}
    return ", ".join(sorted(minors, key=lambda one: [int(n) for n in re.findall(r"\d+", one)]))


def _gpus(images: Iterable[Image]) -> str:
    gpu = [image for image in images if image.variant == "gpu"]
    served = {g for image in gpu for g, what in gpu_support(image) if str(what) != "nothing"}
    known = [one for one in GENERATIONS if one in served]
    return f"{known[0].name} {known[0].capability} to {known[-1].name} {known[-1].capability}"


def _support(images: Iterable[Image]) -> str:
    """Return until when the systems get security updates that reach an image."""
    until = {re.search(r"until (\d{4})-|no security updates", i.os.support) for i in images}
    return ", ".join(sorted({f"until {one[1]}" if one and one[1] else "none" for one in until}))


def _tags(matrix: Matrix) -> str:
    known = {image.name: image for image in all_images(matrix)}
    planned = ((name, planned_tags(known[name], "20261120.1")) for name in TAGGED)
    return table(
        ("image", "its immutable tag in release 20261120.1", "moving tags"),
        ((f"`{n}`", f"`{p.immutable}`", ", ".join(f"`{m}`" for m in p.moving)) for n, p in planned),
    )


def _drivers(matrix: Matrix) -> str:
    gpu = [i for i in all_images(matrix) if i.variant == "gpu"]
    rows = []
    for release, cuda in matrix.cuda.items():
        served = [i.version_of("tensorflow") for i in gpu if i.version_of("cuda") == release]
        rows.append((release, _versions(served), cuda.driver))
    return table(("CUDA", "TensorFlow", "minimum driver"), rows)


def _generations(matrix: Matrix) -> str:
    gpu = [i for i in all_images(matrix) if i.variant == "gpu"]
    columns = [list(g) for _, g in groupby(gpu, key=gpu_support)]
    heads = (f"TensorFlow {_versions([i.version_of('tensorflow') for i in c])}" for c in columns)
    support = [[str(what) for _, what in gpu_support(column[0])] for column in columns]
    rows = zip(GENERATIONS, *support, strict=True)
    return table(
        ("generation", "capability", "for example", *heads),
        ((g.name, g.capability, g.examples, *cells) for g, *cells in rows),
    )


def _corrections(matrix: Matrix) -> str:
    rows: dict[tuple[str, ...], list[str]] = {}
    for image in all_images(matrix):
        for pin in image.pins:
            if pin.documented and pin.documented_exists:
                row = (pin.component, pin.documented, pin.version, pin.why or "")
                rows.setdefault(row, []).append(f"`{image.name}`")
    return table(
        ("images", "pin", "documented", "corrected", "why"),
        ((", ".join(names), *row) for row, names in rows.items()),
    )


def _rules(matrix: Matrix) -> str:
    rows = ((f"`{rule.name}`", rule.judges, rule.says) for rule in matrix.rules)
    return table(("rule", "judges", "what must hold"), rows)


def click_commands() -> dict[str, Any]:
    """Return the commands as Click knows them, by name: ``build``, ``release list``."""
    if not app.registered_commands:
        register(app)
    commands = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        commands[name] = command
        for part, inner in getattr(command, "commands", {}).items():
            commands[f"{name} {part}"] = inner
    return commands


def _commands(_: Matrix) -> str:
    known = click_commands()
    everywhere = {"--json", "--project", "--help"}
    not_shared = {"--layers", *everywhere}
    selection = [p for p in known["show"].params if p.opts[0] not in not_shared]
    names = {p.opts[0]: p.metavar if p.opts[0] == "images" else p.opts[0] for p in selection}
    parts = ["### Selection options\n", table(("option", ""), map(_option, selection))]
    for name, command in known.items():
        opts = {p.opts[0] for p in command.params}
        shared = names if "--tf" in opts else {}
        own = [p for p in command.params if p.opts[0] not in {*shared, *everywhere}]
        without = ", ".join(f"`{shown}`" for one, shown in shared.items() if one not in opts)
        text, _separator, example = str(command.help).partition("Example: ")
        parts += [f"### {name}\n", " ".join(text.split()) + "\n"]
        if example:
            parts.append(f"Example: `{example.strip()}`\n")
        if shared:
            parts.append(f"Takes the selection options{without and ' without '}{without}.\n")
        if own:
            parts.append(table(("option", ""), map(_option, own)))
    return "\n".join(parts)


def _option(parameter: Any) -> tuple[str, str]:
    annotation = parameter.type_descriptor.annotation
    kinds = "|".join(get_args(annotation)) if get_origin(annotation) is Literal else ""
    value = parameter.metavar or kinds or parameter.name.upper()
    spelled = " / ".join(filter(None, map(", ".join, (parameter.opts, parameter.secondary_opts))))
    if not spelled.startswith("-"):
        spelled = value
    elif not parameter.is_flag:
        spelled = f"{spelled} {value}"
    return f"`{spelled}`".replace("|", "\\|"), (parameter.help or "").replace("|", "\\|")


def _labels(descriptions: Mapping[str, str]) -> str:
    return table(("label", "value"), ((f"`{name}`", text) for name, text in descriptions.items()))


def _settings(_: Matrix) -> str:
    defaults = Settings().model_dump(mode="json")
    return table(("key", "value", "default"), _setting_rows(Settings, defaults, ""))


def _setting_rows(
    model: type[BaseModel], defaults: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each key; a field without a description is a section with keys of its own."""
    for name, field in model.model_fields.items():
        default = defaults.get(name)
        if field.description is None:
            (section,) = find_models(field.annotation)
            yield from _setting_rows(section, default or {}, f"{prefix}{name}.")
            continue
        value, _, words = field.description.partition(" Default: ")
        words = words.removesuffix(".")
        if not words and default is not None:
            words = f"`{default}`" if isinstance(default, str) else f"{default:g}"
        yield f"`{field.title or prefix + name}`", value, words


def _install(_: Matrix) -> str:
    """Return the lines that install imgbuild: from the index once the release workflow says so."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    if re.search(r'^  ON_INDEX: "yes"$', text, re.MULTILINE):
        return "```console\n$ uvx imgbuild show --tf 2.2\n```\n"
    return "```console\n$ pipx install ./imgbuild\n$ imgbuild show --tf 2.2\n```\n"


def _catalogue(matrix: Matrix) -> str:
    """Return the command that writes the catalogue, and what it prints."""
    count = len(all_images(matrix))
    said = f"catalog/index.html: {count} images, 14 of them published or built here."
    return f"```console example\n$ imgbuild catalog\n{said}\n```\n"


def _rooms(_: Matrix) -> str:
    """Return a picture of the packages, each above all that it imports, and a table of them."""
    graph = grimp.build_graph("imgbuild", cache_dir=None)
    rooms = [name for name in graph.find_children("imgbuild") if graph.find_children(name)]
    imports: dict[str, set[str]] = {}
    for room in rooms:
        imports[room] = {
            other
            for other in rooms
            if other != room
            and graph.direct_import_exists(importer=room, imported=other, as_packages=True)
        }
    floors: dict[str, int] = {}
    while len(floors) < len(rooms):
        for room in rooms:
            if imports[room] <= floors.keys():
                floors[room] = 1 + max((floors[below] for below in imports[room]), default=0)
    picture, rows = [], []
    for floor in range(max(floors.values()), 0, -1):
        level = sorted(room for room in rooms if floors[room] == floor)
        names = [room.rpartition(".")[2] for room in level]
        boxes = "".join(f"[ {name} ]".center(16) for name in names)
        picture.append(boxes.center(66).rstrip() + "\n")
        for room, name in zip(level, names, strict=True):
            job = (importlib.import_module(room).__doc__ or "").rstrip(".\n").replace("``", "`")
            below = sorted(other.rpartition(".")[2] for other in imports[room])
            rows.append((f"`{name}`", job, ", ".join(below) or "no other room"))
    return "```text\n" + "".join(picture) + "```\n\n" + table(("room", "job", "imports"), rows)


TABLES: dict[str, Callable[[Matrix], str]] = {
    "install": _install,
    "stacks": _stacks,
    "tags": _tags,
    "drivers": _drivers,
    "generations": _generations,
    "corrections": _corrections,
    "rules": _rules,
    "settings": _settings,
    "labels": lambda _: _labels(DESCRIPTIONS),
    "extension_labels": lambda _: _labels(EXTENSION_DESCRIPTIONS),
    "commands": _commands,
    "catalogue": _catalogue,
    "rooms": _rooms,
}
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str, matrix: Matrix) -> str:
    """Return a page with its generated parts written anew."""
    return _BLOCK.sub(lambda m: m[1] + TABLES[m[2]](matrix) + m[3], text)


def blocks(text: str) -> Iterator[str]:
    """Return the names of a page's generated parts."""
    return (m[2] for m in _BLOCK.finditer(text))
