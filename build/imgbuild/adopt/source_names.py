"""Resolve the names of a source to modules, and derive its facts."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from imgbuild.adopt.path_folders import find_folders
from imgbuild.adopt.source_facts import Import, SourceFacts
from imgbuild.adopt.syntax_tree import (
    AnyNode,
    CodeNode,
    gives_up,
    last_name,
    literal_text,
    walk_nodes,
)
from imgbuild.adopt.tensorflow_names import REMOVED_NAMES, SIGN_OF, SINCE_0_12, SINCE_1

#: Limits: parts of a dotted name, nesting of a computed text, imports of a source, names of an
#: import.
_MOST_PARTS, _DEEPEST, _MOST_IMPORTS, _MOST_NAMES = 8, 20, 2000, 500
#: Limits: characters of all imports, lines of a sign, folders for ``sys.path``.
_LONGEST_IMPORTS, _MOST_LINES, _MOST_FOLDERS = 200_000, 1000, 100
_WINDOWS = {
    *("imshow", "namedWindow", "waitKey", "waitKeyEx", "destroyAllWindows", "destroyWindow"),
    *("moveWindow", "resizeWindow", "createTrackbar", "setMouseCallback", "selectROI"),
}
#: Names that SciPy 1.2 and 1.3 removed from ``scipy.misc``.
_SCIPY_MISC = {
    *("imread", "imresize", "imsave", "imshow", "imrotate", "imfilter", "toimage", "fromimage"),
    *("bytescale", "comb", "factorial", "factorial2", "logsumexp", "pade", "info", "source"),
}
#: Keywords of ``tf.concat`` and ``tf.split`` since 1.0.
_NEW_KEYWORDS = {"axis", "num_or_size_splits"}
_GYMS = {"gym", "gymnasium", "retro", "pybullet_envs", "roboschool"}
_RUNNERS = {"tensorflow.app.run", "tensorflow.compat.v1.app.run", "absl.app.run", "fire.Fire"}
#: The operator of a requirement for a comparison that must hold, and for one that must not.
_REQUIRED = {ast.GtE: ">=", ast.Gt: ">", ast.Lt: "<", ast.LtE: "<="}
_REFUSED = {ast.Lt: ">=", ast.LtE: ">"}
#: Limit for the comparisons of TensorFlow's version in a source.
_MOST_CHECKS = 20
_WORKING_CALLS = {"main", "train", "run", "test", "fit", "fit_generator", "evaluate", "learn"}
_PATH_CALLS = {"sys.path.append", "sys.path.insert", "sys.path.extend", "site.addsitedir"}


def resolve_names(path: str, bodies: Iterable[tuple[list[ast.stmt], int]]) -> SourceFacts:
    """Return the facts of parsed code; each body has the number of its cell, or 0."""
    resolver = _Resolver(path)
    for body, cell in bodies:
        for place in walk_nodes(body, cell, _VISITS):
            _VISITS[type(place.node)](place, resolver)
    resolver.nodes.sort(key=lambda place: place.line)
    return resolver.resolve()


class _Resolver:
    """Resolve the names of a source to modules, and derive its facts."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.nodes: list[CodeNode] = []
        self.minimum: tuple[int, ...] = (3, 0)
        self.program_line = 0
        self.is_script = False
        self.values: dict[str, ast.expr] = {}
        self.aliases: dict[str, str] = {}
        self.imports: list[Import] = []
        self.signs: defaultdict[str, set[int]] = defaultdict(set)
        self.lines: defaultdict[str, set[int]] = defaultdict(set)
        self.appends: list[ast.expr] = []
        self.spellings: dict[str, int] = {}
        self.delays_annotations = False
        self.removed: set[str] = set()

    def require(self, *version: int) -> None:
        self.minimum = max(self.minimum, version)

    def resolve(self) -> SourceFacts:
        for place in self.nodes:
            if isinstance(place.node, ast.Import):
                self._read_import(place.node, place)
            elif isinstance(place.node, ast.ImportFrom):
                self._read_import_from(place.node, place)
        for place in self.nodes:
            if isinstance(place.node, ast.Assign):
                self._read_alias(place.node)
        uses_gym = any(imported.module.split(".")[0] in _GYMS for imported in self.imports)
        for place in self.nodes:
            self._read_use(place, uses_gym=uses_gym)
        self._compare_spellings()
        return SourceFacts(
            self.path,
            self._distinct_imports(),
            minimum_python=".".join(map(str, self.minimum)),
            program_line=self.program_line,
            is_script=self.is_script and not self.program_line,
            tensorflow={sign: _first_lines(lines) for sign, lines in self.signs.items()},
            windows=_first_lines(self.lines["windows"]),
            renders=_first_lines(self.lines["renders"]),
            scipy_misc=_first_lines(self.lines["scipy_misc"]),
            path_appends=find_folders(
                self.appends[:_MOST_FOLDERS], self.path, self.values, self._path_of
            ),
            removed_names=tuple(sorted(self.removed)),
            version_checks=tuple(self._find_version_checks())[:_MOST_CHECKS],
        )

    def _find_version_checks(self) -> Iterator[tuple[int, str]]:
        """Yield the specifiers of the checks of TensorFlow's version that stop the program."""
        for place in self.nodes:
            node = place.node
            if not isinstance(node, ast.Assert | ast.If) or not isinstance(node.test, ast.Compare):
                continue
            test = node.test
            operators = _REQUIRED if isinstance(node, ast.Assert) else _REFUSED
            operator = operators.get(type(test.ops[0])) if len(test.ops) == 1 else None
            version = self._literal_version(test.comparators[0])
            if operator and version and self._is_tensorflow_version(test.left):
                yield place.line, f"{operator}{version}"

    def _literal_version(self, node: ast.expr) -> str:
        """Return a literal version, also of a variable or a call, for example ``parse("1.4")``."""
        for _ in range(_DEEPEST):
            if isinstance(node, ast.Call) and node.args:
                node = node.args[0]
            elif isinstance(node, ast.Name) and node.id in self.values:
                node = self.values[node.id]
        text = literal_text(node)
        return text if re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,3}){1,3}", text) else ""

    def _is_tensorflow_version(self, node: ast.expr) -> bool:
        for _ in range(_DEEPEST):
            if isinstance(node, ast.Call) and node.args:
                node = node.args[0]
        return self._path_of(node) in {"tensorflow.__version__", "tensorflow.VERSION"}

    def _distinct_imports(self) -> tuple[Import, ...]:
        """Return the first of equal imports, within the limit."""
        distinct: dict[Import, Import] = {}
        size = 0
        for imported in sorted(self.imports, key=lambda imported: imported.line):
            limited = imported._replace(names=imported.names[:_MOST_NAMES])
            size += len(limited.module) + sum(map(len, limited.names))
            if len(distinct) == _MOST_IMPORTS or size > _LONGEST_IMPORTS:
                break
            distinct.setdefault(limited._replace(line=0), limited)
        return tuple(distinct.values())

    def _read_import(self, node: ast.Import, place: CodeNode) -> None:
        for alias in node.names:
            self._add_import(Import(alias.name, 0, (), place.line, place.context.kind))
            name = alias.name if alias.asname else alias.name.split(".")[0]
            self._bind(alias.asname or name, name)
            self._read_path(alias.name, place)

    def _read_import_from(self, node: ast.ImportFrom, place: CodeNode) -> None:
        module = node.module or ""
        names = tuple(alias.name for alias in node.names)
        if module == "__future__":
            if "annotations" in names:
                self.delays_annotations = True
                self.require(3, 7)
            return
        self._add_import(Import(module, node.level, names, place.line, place.context.kind))
        if node.level:
            return
        self._read_path(module, place)
        for alias in node.names:
            path = f"{module}.{alias.name}"
            self._bind(alias.asname or alias.name, path)
            self._read_path(path, place)

    def _add_import(self, imported: Import) -> None:
        self.imports.append(imported)
        if imported.level:
            return
        top = imported.module.split(".")[0]
        if top in {"dataclasses", "contextvars"} and imported.kind == "required":
            self.require(3, 7)
        if top in {"tensorflow", "keras"}:
            self.signs[top].add(imported.line)

    def _bind(self, name: str, path: str) -> None:
        """Bind a name to a path. If the program chooses by version, it means `compat.v1`."""
        if name not in self.aliases or path == "tensorflow.compat.v1":
            self.aliases[name] = path

    def _read_alias(self, node: ast.Assign) -> None:
        """Bind the target of an assignment, for example ``slim = tf.contrib.slim``."""
        if isinstance(node.value, ast.Attribute | ast.Name):
            path = self._path_of(node.value)
            for target in node.targets:
                # The flags' values are used everywhere, which says no more than their definition.
                if path and isinstance(target, ast.Name) and target.id != "FLAGS":
                    self.aliases.setdefault(target.id, path)

    def _path_of(self, node: ast.AST) -> str:
        """Return the dotted path of a name or attribute; empty if its root is not imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _MOST_PARTS:
            parts.append(node.attr)
            node = node.value
        root = self.aliases.get(node.id, "") if isinstance(node, ast.Name) else ""
        return ".".join((root, *reversed(parts))) if root else ""

    def _read_use(self, place: CodeNode, *, uses_gym: bool) -> None:
        node = place.node
        if isinstance(node, ast.Attribute | ast.Name):
            if path := self._path_of(node):
                self._read_path(path, place)
        elif isinstance(node, ast.Call):
            self._read_call(node, place, uses_gym=uses_gym)
        elif isinstance(node, ast.AugAssign):
            if self._path_of(node.target) == "sys.path":
                self.appends.append(node.value)
        elif isinstance(node, ast.Subscript | ast.BinOp) and not self.delays_annotations:
            self.require(3, 9 if isinstance(node, ast.Subscript) else 10)

    def _read_path(self, path: str, place: CodeNode) -> None:
        """Note the signs in the use of a dotted path."""
        top, _, rest = path.partition(".")
        if top == "cv2" and rest in _WINDOWS:
            self.lines["windows"].add(place.line)
        elif path.startswith("scipy.misc.") and rest.removeprefix("misc.") in _SCIPY_MISC:
            self.lines["scipy_misc"].add(place.line)
        elif top == "tensorflow" and rest:
            self._read_tensorflow(rest.removeprefix("compat.v2."), place)

    def _read_tensorflow(self, rest: str, place: CodeNode) -> None:
        parts = rest.split(".")
        prefixes = (".".join(parts[:length]) for length in range(1, min(len(parts), 3) + 1))
        sign = next((SIGN_OF[prefix] for prefix in prefixes if prefix in SIGN_OF), "")
        if parts[-1] in {"__version__", "VERSION"} and place.context.is_compared:
            sign = "guards0"
        if sign:
            self.signs[sign].add(place.line)
        if any(rest == name or rest.startswith(f"{name}.") for name in SINCE_1):
            self.signs["since1"].add(place.line)
        if rest in SINCE_0_12:
            self.signs["since0.12"].add(place.line)
        if sign == "contrib" and parts[-1] == "enable_eager_execution":
            self.signs["eager1"].add(place.line)
        if sign == "removed0":
            self._note_removed(rest, place)
        self.spellings.setdefault(rest, place.line)

    def _note_removed(self, name: str, place: CodeNode) -> None:
        self.removed.add(name)
        self.signs["removed0"].add(place.line)
        if place.context.is_guarded:
            self.signs["guards0"].add(place.line)

    def _compare_spellings(self) -> None:
        """Note a guard where a source has the old and the new name of a call."""
        for old, new in REMOVED_NAMES.items():
            if old in self.spellings and new in self.spellings:
                self.signs["guards0"].add(self.spellings[old])

    def _read_call(self, node: ast.Call, place: CodeNode, *, uses_gym: bool) -> None:
        path = self._path_of(node.func)
        name = last_name(node.func)
        if path in _RUNNERS:
            self.program_line = self.program_line or place.line
        elif path in {"tensorflow.concat", "tensorflow.split"}:
            self._read_concat(node, place)
        elif path in _PATH_CALLS:
            self.appends += node.args
        elif name == "render" and isinstance(node.func, ast.Attribute):
            receiver = last_name(node.func.value).lower()
            if uses_gym or "env" in receiver:
                self.lines["renders"].add(place.line)
        elif path == "importlib.import_module" or name == "__import__":
            self._read_dynamic_import(node, place)
        elif name in {"hasattr", "getattr"} and not path and node.args:
            owner = self._path_of(node.args[0])
            if owner.split(".")[0] == "tensorflow":
                self.signs["guards0"].add(place.line)
        elif path == "tensorflow.__version__.startswith":
            self.signs["guards0"].add(place.line)

    def _read_concat(self, node: ast.Call, place: CodeNode) -> None:
        """Note the order of arguments of 0.x: the axis came first."""
        keywords = {keyword.arg for keyword in node.keywords}
        is_old = bool(keywords & {"concat_dim", "split_dim"})
        if node.args and _is_integer(node.args[0]):
            is_old = True
        if not is_old and (keywords & _NEW_KEYWORDS or _ends_with_axis(node)):
            self.signs["since1"].add(place.line)
        if is_old:
            self._note_removed(last_name(node.func), place)

    def _read_dynamic_import(self, node: ast.Call, place: CodeNode) -> None:
        """Read the literal module, or the literal package before a computed module."""
        argument = node.args[0] if node.args else None
        kind = place.context.weaken("wanted").kind
        if module := literal_text(argument):
            if _is_module(module):
                self.imports.append(Import(module, 0, (), place.line, kind))
            return
        prefix = _literal_start(argument)
        package = re.split(r"[%{]", prefix)[0].rpartition(".")[0]
        if package and _is_module(package):
            self.imports.append(Import(package, 0, ("**",), place.line, kind))


def _first_lines(lines: set[int]) -> tuple[int, ...]:
    return tuple(sorted(lines)[:_MOST_LINES])


def _ends_with_axis(node: ast.Call) -> bool:
    """Tell whether a call is ``tf.concat(values, 1)``, the order of 1.0."""
    return len(node.args) == 2 and _is_integer(node.args[1])


def _is_integer(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_module(text: str) -> bool:
    return len(text) < 200 and all(part.isidentifier() for part in text.split("."))


def _literal_start(node: ast.AST | None) -> str:
    """Return the literal text with which a computed text begins."""
    for _ in range(_DEEPEST):
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.JoinedStr) and node.values:
            node = node.values[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
    return literal_text(node)


def _keep(place: CodeNode, resolver: _Resolver) -> None:
    resolver.nodes.append(place)


def _visit_name(place: CodeNode, resolver: _Resolver) -> None:
    node: AnyNode = place.node
    if isinstance(node.ctx, ast.Load):
        resolver.nodes.append(place)


def _visit_assign(place: CodeNode, resolver: _Resolver) -> None:
    node: AnyNode = place.node
    resolver.nodes.append(place)
    for target in node.targets:
        if isinstance(target, ast.Name):
            resolver.values.setdefault(target.id, node.value)


def _visit_if(place: CodeNode, resolver: _Resolver) -> None:
    node: AnyNode = place.node
    test = node.test
    if gives_up(node.body):
        resolver.nodes.append(place)
    if place.context.is_top and isinstance(test, ast.Compare):
        sides = (test.left, *test.comparators)
        named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
        if named and any(literal_text(side) == "__main__" for side in sides):
            resolver.program_line = resolver.program_line or place.line


def _visit_loop(place: CodeNode, resolver: _Resolver) -> None:
    resolver.is_script = resolver.is_script or place.context.is_top


def _visit_expression(place: CodeNode, resolver: _Resolver) -> None:
    node: AnyNode = place.node
    if place.context.is_top and isinstance(node.value, ast.Call):
        works = last_name(node.value.func) in _WORKING_CALLS
        resolver.is_script = resolver.is_script or works


def _visit_function(place: CodeNode, resolver: _Resolver) -> None:
    node: AnyNode = place.node
    if node.args.posonlyargs:
        resolver.require(3, 8)
    if isinstance(node, ast.AsyncFunctionDef):
        resolver.require(3, 5)


def _visit_subscript(place: CodeNode, resolver: _Resolver) -> None:
    node: AnyNode = place.node
    generics = {"list", "dict", "tuple", "set", "frozenset", "type"}
    if place.context.is_annotation and last_name(node.value) in generics:
        resolver.nodes.append(place)


def _visit_operator(place: CodeNode, resolver: _Resolver) -> None:
    node: AnyNode = place.node
    if isinstance(node.op, ast.MatMult):
        resolver.require(3, 5)
    elif isinstance(node.op, ast.BitOr) and place.context.is_annotation:
        resolver.nodes.append(place)


def _version(*version: int) -> Callable[[CodeNode, _Resolver], None]:
    return lambda _, resolver: resolver.require(*version)


_VISITS: dict[type[ast.AST], Callable[[CodeNode, _Resolver], None]] = {
    ast.Import: _keep,
    ast.ImportFrom: _keep,
    ast.Call: _keep,
    ast.Assert: _keep,
    ast.Attribute: _keep,
    ast.Name: _visit_name,
    ast.AugAssign: _keep,
    ast.Assign: _visit_assign,
    ast.If: _visit_if,
    ast.For: _visit_loop,
    ast.While: _visit_loop,
    ast.With: _visit_loop,
    ast.Expr: _visit_expression,
    ast.FunctionDef: _visit_function,
    ast.AsyncFunctionDef: _visit_function,
    ast.Lambda: _visit_function,
    ast.Subscript: _visit_subscript,
    ast.BinOp: _visit_operator,
    ast.JoinedStr: _version(3, 6),
    ast.AnnAssign: _version(3, 6),
    ast.NamedExpr: _version(3, 8),
    ast.Match: _version(3, 10),
    ast.TryStar: _version(3, 11),
}
