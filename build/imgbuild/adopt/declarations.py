"""Read the packages that setup.py, setup.cfg, pyproject.toml, Pipfile and conda files ask for.

Each function returns requirements in pip's format with their lines, by group. The group without a
name has the packages that are always needed; the others are extras and tools of developers. The
Python that a file asks for is a requirement of ``python``. A file that cannot be parsed asks for
nothing.
"""

import ast
import configparser
import re
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from imgbuild.core.errors import InputError
from imgbuild.core.yaml_file import LARGEST, Document, Location, parse_document
from imgbuild.extend.conda_file import convert_entry, list_entries

Groups = dict[str, list[tuple[int, str]]]

#: Errors of parsers for input that is wrong, too deep or too large.
PARSER_ERRORS = (ValueError, TypeError, RecursionError, MemoryError, configparser.Error)
#: Limit for the requirements of a group.
_MOST = 1000
#: Limit for the dots of a line of TOML: tomllib takes quadratic time for the parts of a key.
_MOST_DOTS = 500
#: Group for the tools of developers.
_DEVELOPERS = "dev"
_QUOTED = re.compile(r"""["']([^"'\n]{1,200})["']""")
_LIST = re.compile(r"install_requires\s{0,9}=\s{0,9}[\[(]([^\])]{0,20000})")


def read_setup_py(text: str) -> Groups:
    """Return the packages that a ``setup.py`` asks for, read from its syntax tree.

    Lists, sums of lists and names of constant lists are supported. Python 2 is searched for a list.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes
            tree = ast.parse(text)
        return _read_setup_call(tree)
    except (SyntaxError, *PARSER_ERRORS):
        return _search_setup_py(text)


def _read_setup_call(tree: ast.Module) -> Groups:
    values = _collect_values(tree)
    groups: Groups = {"": []}
    for node in values.get(":install_requires", []):
        groups[""] += _constant_strings(node, values)
    for node in values.get(":python_requires", []):
        groups[""] += [(line, f"python{text}") for line, text in _constant_strings(node, values)]
    for node in values.get(":extras_require", []):
        for extra, requirements in _constant_items(node, values):
            groups.setdefault(extra, []).extend(_constant_strings(requirements, values))
    return groups


def _search_setup_py(text: str) -> Groups:
    match = _LIST.search(text)
    if not match:
        return {}
    lines = []
    for quoted in _QUOTED.finditer(match[1]):
        line = text.count("\n", 0, match.start(1) + quoted.start()) + 1
        lines.append((line, quoted[1]))
    return {"": lines[:_MOST]}


def _collect_values(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """Return the values that each name gets; names of arguments and keys begin with a colon."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        for name, value in _named_values(node):
            values.setdefault(name, []).append(value)
    return values


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _target_values(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from _target_values(target, value)
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[value]
        ):
            yield name, value
        case ast.Call() | ast.Dict():
            for key, item in _items(node):
                yield f":{key}", item


def _target_values(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            yield f":{key}", value


def _items(node: ast.Call | ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    """Yield the keyword arguments of a call, or the constant keys and values of a mapping."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            yield keyword.arg or "", keyword.value
        return
    for key, item in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, item


def _constant_strings(
    node: ast.expr, values: Mapping[str, list[ast.expr]]
) -> list[tuple[int, str]]:
    """Return the strings of a constant list, with their lines."""
    strings: list[tuple[int, str]] = []
    names: set[str] = set()  # each name counts once, so cyclic and nested sums end
    stack = [node]
    while stack and len(strings) < _MOST:
        node = stack.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines = enumerate(node.value.splitlines(), node.lineno)
            strings += [(number, line.strip()) for number, line in lines if line.strip()]
        elif isinstance(node, ast.Name) and node.id not in names:
            names.add(node.id)
            stack += reversed(values.get(node.id, []))
        else:
            stack += reversed(_parts(node))
    return strings[:_MOST]


def _parts(node: ast.expr) -> list[ast.expr]:
    """Return the expressions whose strings an expression contains."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return parts
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [left, right]
        case ast.IfExp(body=left, orelse=right):
            return [left, right]
        case (
            ast.Starred(value=value)
            | ast.Call(func=ast.Name(id="list" | "tuple" | "set" | "sorted"), args=[value])
            | ast.Call(func=ast.Attribute(value=value, attr="split" | "splitlines" | "strip"))
        ):
            return [value]
    return []


def _constant_items(
    node: ast.expr, values: Mapping[str, list[ast.expr]]
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the keys and values of a constant mapping, or of a name that has one."""
    nodes = values.get(node.id, []) if isinstance(node, ast.Name) else [node]
    for mapping in nodes:
        if isinstance(mapping, ast.Call | ast.Dict):
            yield from _items(mapping)


def read_setup_cfg(text: str) -> Groups:
    """Return the packages that the section ``options`` of a ``setup.cfg`` asks for."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except PARSER_ERRORS:
        return {}
    asked = {"": parser.get("options", "install_requires", fallback="").splitlines()}
    if python := parser.get("options", "python_requires", fallback="").strip():
        asked[""].append(f"python{python}")
    extras = "options.extras_require"
    if parser.has_section(extras):
        asked |= {name: value.splitlines() for name, value in parser.items(extras)}
    return _locate_groups(text, asked)


def _locate_groups(text: str, asked: Mapping[str, Iterable[object]]) -> Groups:
    """Return the requirements with the line on which each is found first."""
    groups: Groups = {}
    for group, requirements in asked.items():
        lines = []
        for requirement in [*requirements][:_MOST]:
            line = str(requirement).strip()
            if line:
                lines.append((_find_line(text, line), line))
        groups[group] = lines
    return groups


def _find_line(text: str, value: str) -> int:
    position = text.find(value)
    if position < 0 and value.startswith("python"):
        position = text.find("python")
    return text.count("\n", 0, position) + 1 if position >= 0 else 0


def read_pyproject(text: str) -> Groups:
    """Return the packages of a ``pyproject.toml``, by PEP 621, PEP 735, Poetry or Flit."""
    document = _parse_toml(text)
    project, tool = _table(document, "project"), _table(document, "tool")
    asked: dict[str, list[object]] = {"": _list(project, "dependencies")}
    if python := project.get("requires-python"):
        asked[""].append(f"python{python}")
    asked |= {name: _as_list(value) for name, value in _extras(document, project)}
    flit = _table(_table(tool, "flit"), "metadata")
    asked[""] += _list(flit, "requires")
    groups = _locate_groups(text, asked)
    for group, table in _poetry_groups(_table(tool, "poetry")):
        if table:
            groups.setdefault(group, []).extend(_read_versions(text, table))
    return groups


def _parse_toml(text: str) -> dict[str, Any]:
    lines = text.splitlines()
    if len(text) > LARGEST or any(line.count(".") > _MOST_DOTS for line in lines):
        return {}
    try:
        return tomllib.loads(text)
    except PARSER_ERRORS:
        return {}


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _list(table: Mapping[str, Any], key: str) -> list[object]:
    return _as_list(table.get(key))


def _as_list(value: object) -> list[object]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _extras(
    document: Mapping[str, Any], project: Mapping[str, Any]
) -> Iterator[tuple[str, object]]:
    for name, value in _table(project, "optional-dependencies").items():
        yield name or _DEVELOPERS, value
    for name, value in _table(document, "dependency-groups").items():
        yield name or _DEVELOPERS, value


def _poetry_groups(poetry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", _table(poetry, "dependencies")
    yield _DEVELOPERS, _table(poetry, "dev-dependencies")
    for name in _table(poetry, "group"):
        yield name or _DEVELOPERS, _table(_table(_table(poetry, "group"), name), "dependencies")


def read_pipfile(text: str) -> Groups:
    """Return the packages that a ``Pipfile`` asks for."""
    document = _parse_toml(text)
    groups = {
        "": _read_versions(text, _table(document, "packages")),
        _DEVELOPERS: _read_versions(text, _table(document, "dev-packages")),
    }
    python = _table(document, "requires").get("python_version")
    if isinstance(python, str):
        groups[""].append((_find_line(text, "python_version"), f"python=={python}.*"))
    return groups


def _read_versions(text: str, table: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the requirements of a table of names and versions, of Poetry or pipenv."""
    lines: list[tuple[int, str]] = []
    places: dict[str, int] = {}
    for number, content in enumerate(text.split("\n"), 1):
        places.setdefault(content.partition("=")[0].strip().strip("\"'"), number)
    for name, value in [*table.items()][:_MOST]:
        line = places.get(name, 0)
        alternatives = value if isinstance(value, list) else [value]
        for alternative in alternatives[: _MOST - len(lines)]:
            options = alternative if isinstance(alternative, dict) else {"version": alternative}
            lines.append((line, _read_version(name, options)))
    return lines


def _read_version(name: str, options: Mapping[str, Any]) -> str:
    """Return the requirement of a table's value; a source other than the index stays visible."""
    for source in ("git", "path", "url", "file"):
        if source in options:
            return f"{name} @ {options[source]}"
    versions = ",".join(map(_convert_version, str(options.get("version", "*")).split(",")))
    markers = [str(options["markers"])] if "markers" in options else []
    if isinstance(options.get("python"), str):
        markers.append(_python_marker(options["python"]))
    return " ; ".join([f"{name}{versions}", *filter(None, [" and ".join(filter(None, markers))])])


def _python_marker(versions: str) -> str:
    """Return Poetry's key ``python`` as a marker; empty if it has alternatives."""
    if "|" in versions:
        return ""
    bounds = ",".join(map(_convert_version, versions.split(",")))
    matches = re.finditer(r"(==|>=|<=|<|>|!=)([0-9.]+)", bounds)
    return " and ".join(f"python_version {match[1]} '{match[2]}'" for match in matches)


def _convert_version(text: str) -> str:
    """Return a version of Poetry in pip's format: ``^2.3`` is ``>=2.3,<3``."""
    text = text.partition("|")[0].strip()
    match = re.fullmatch(r"([\^~]?)\s*(\d{1,5}(?:\.\d{1,5}){0,4})(\.\*)?", text)
    if text == "*" or not text:
        return ""
    if not match:
        return text.replace(" ", "")
    operator, version, star = match.groups()
    numbers = [int(number) for number in version.split(".")]
    if operator == "~" and len(numbers) > 1:
        return f">={version},<{numbers[0]}.{numbers[1] + 1}"
    if operator == "^" and numbers[0] == 0 and len(numbers) > 1:
        return f">={version},<0.{numbers[1] + 1}"
    if operator:
        return f">={version},<{numbers[0] + 1}"
    return f"=={version}{star or ''}"


def read_conda_text(text: str) -> Groups:
    """Return the packages that an ``environment.yml`` asks for, by their names in pip."""
    if len(text.encode(errors="replace")) > LARGEST:
        return {}
    try:
        document = parse_document(Path("environment.yml"), text)
    except (InputError, *PARSER_ERRORS):
        return {}
    entries = document.value.get("dependencies") if isinstance(document.value, dict) else None
    lines: list[tuple[int, str]] = []
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        lines += _read_entry(document, ("dependencies", number), entry)
    return {"": lines[:_MOST]}


def _read_entry(document: Document, location: Location, entry: object) -> Iterator[tuple[int, str]]:
    if isinstance(entry, str) and (requirement := convert_entry(entry)):
        yield document.marks[location][0], requirement
    pip_lines = entry.get("pip") if isinstance(entry, dict) else None
    for number, line in enumerate(pip_lines if isinstance(pip_lines, list) else []):
        if isinstance(line, str):
            yield document.marks[*location, "pip", number][0], line


def read_conda_list(text: str) -> Groups:
    """Return the packages in the output of ``conda list --export`` or ``--explicit``."""
    entries = [(index + 1, convert_entry(entry)) for index, entry in list_entries(text)]
    return {"": [entry for entry in entries if entry[1]][:_MOST]}
