"""Compute the folders that a source adds to ``sys.path``, without running it."""

import ast
import posixpath
from collections.abc import Callable, Mapping, Sequence

from imgbuild.adopt.syntax_tree import last_name, literal_text

#: Limits: nesting of an expression, expressions of a source, characters of a folder.
_DEEPEST, _MOST_EXPRESSIONS, _LONGEST_FOLDER = 20, 2000, 500
_SAME_FOLDER = {"Path", "PurePath", "abspath", "realpath", "normpath", "str"}


def find_folders(
    nodes: Sequence[ast.expr],
    path: str,
    values: Mapping[str, ast.expr],
    path_of: Callable[[ast.AST], str],
) -> tuple[str, ...]:
    """Return the folders that expressions mean, as `SourceFacts.path_appends` has them.

    ``values`` are the expressions of variables, and ``path_of`` returns the dotted path of a name.
    """
    expressions = _Expressions(path, values, path_of)
    folders: list[str] = []
    for node in nodes:
        parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
        folders += [expressions.find_folder(part, 0) for part in parts]
    return tuple(dict.fromkeys(filter(None, folders)))


class _Expressions:
    """Compute folders, within a limit for the expressions of a source."""

    def __init__(
        self, path: str, values: Mapping[str, ast.expr], path_of: Callable[[ast.AST], str]
    ) -> None:
        self.path, self.values, self.path_of = path, values, path_of
        self.budget = _MOST_EXPRESSIONS

    def find_folder(self, node: ast.AST, depth: int) -> str:
        """Return the folder of an expression as in `path_appends`; empty if it is unknown."""
        self.budget -= 1
        if depth > _DEEPEST or self.budget < 0:
            return ""
        if isinstance(node, ast.Constant):
            return _literal_folder(node)
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return f"/{self.path}"
            value = self.values.get(node.id)
            return self.find_folder(value, depth + 1) if value else ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            left = self.find_folder(node.left, depth + 1)
            right = literal_text(node.right).replace("\\", "/")
            return _normalise(f"{left}/{right}") if left and right else ""
        return self._computed_folder(node, depth + 1)

    def _computed_folder(self, node: ast.AST, depth: int) -> str:
        if isinstance(node, ast.Call):
            return self._called_folder(node, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute_folder(node, depth)
        return self._item_folder(node, depth) if isinstance(node, ast.Subscript) else ""

    def _called_folder(self, node: ast.Call, depth: int) -> str:
        name = last_name(node.func)
        if name in {"getcwd", "cwd"}:
            return "."
        if name in {"resolve", "absolute", "as_posix"}:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            return self.find_folder(owner, depth)
        parts = [self.find_folder(argument, depth) for argument in node.args]
        if not parts or not all(parts) or any(part.startswith("/") for part in parts[1:]):
            return ""
        if name == "dirname":
            return _parent(parts[0])
        if name in {"join", "joinpath", *_SAME_FOLDER}:
            if name == "joinpath" and isinstance(node.func, ast.Attribute):
                parts.insert(0, self.find_folder(node.func.value, depth))
            return _normalise("/".join(parts)) if all(parts) else ""
        return ""

    def _attribute_folder(self, node: ast.Attribute, depth: int) -> str:
        if node.attr == "parent":
            return _parent(self.find_folder(node.value, depth))
        return {"pardir": "..", "curdir": "."}.get(node.attr, "")

    def _item_folder(self, node: ast.Subscript, depth: int) -> str:
        """Return the folder of ``sys.argv[0]``, ``sys.path[0]`` or ``parents[1]`` of a path."""
        number = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(number, int) or not 0 <= number <= _DEEPEST:
            return ""
        owner = self.path_of(node.value)
        if number == 0 and owner in {"sys.argv", "sys.path"}:
            path = f"/{self.path}"
            return path if owner == "sys.argv" else _parent(path)
        if not isinstance(node.value, ast.Attribute) or node.value.attr != "parents":
            return ""
        folder = self.find_folder(node.value.value, depth)
        for _ in range(number + 1):
            folder = _parent(folder)
        return folder


def _literal_folder(node: ast.Constant) -> str:
    """Return a relative folder; empty for other constants, and folders of the author's machine."""
    if not isinstance(node.value, str):
        return ""
    text = node.value.replace("\\", "/")
    return "" if text.startswith(("/", "~")) or ":" in text else _normalise(text)


def _parent(folder: str) -> str:
    """Return the folder above; empty if it is above the repository, or unknown."""
    if folder in {"", "/"}:
        return ""
    if folder.startswith("/"):
        return posixpath.dirname(folder)
    return _normalise(f"{folder}/..")


def _normalise(folder: str) -> str:
    """Return a folder without ``.`` and ``..`` in the middle.

    It is empty if it is above the repository, or longer than any real one.
    """
    if len(folder) > _LONGEST_FOLDER:
        return ""
    parts: list[str] = []
    is_inside = folder.startswith("/")
    for part in folder.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part == ".." and is_inside:
            return ""
        elif part not in {"", "."}:
            parts.append(part)
    return ("/" if is_inside else "") + "/".join(parts) or "."
