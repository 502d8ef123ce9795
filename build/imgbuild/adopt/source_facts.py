"""The facts of a Python file or notebook."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["required", "wanted", "optional"]
#: The kinds of imports, the strongest first.
KINDS: tuple[Kind, ...] = ("required", "wanted", "optional")


class Import(NamedTuple):
    """An import: its module, the level of a relative one, and the imported names.

    ``kind`` is required (at module level), wanted (in a function or a condition) or optional (under
    ``try`` with ``except ImportError``). The name ``**`` means any submodule, imported by a name
    that the program computes.
    """

    module: str
    level: int
    names: tuple[str, ...]
    line: int
    kind: Kind


@dataclass(frozen=True)
class SourceFacts:
    """The facts of one Python file, or of a notebook, where cells count as lines.

    - ``python2``: the line at which it is Python 2, or None
    - ``broken``: the line of another syntax error, or None
    - ``minimum_python``: the oldest Python that parses it, for example 3.6 for f-strings
    - ``maximum_python``: 3.6 if it uses ``async`` or ``await`` as a name
    - ``program_line``: the line that makes it a program, 0 if none does
    - ``is_script``: it has no such line, but works when it is imported
    - ``tensorflow``: lines of each sign of a TensorFlow version, see `read_source`
    - ``path_appends``: folders that it adds to ``sys.path``. A folder that begins with a slash is
      relative to the repository, another one to the working folder.
    - ``commands``: lines of a notebook that are magics or commands of a shell, with their cells
    - ``removed_names``: the distinct names of the sign removed0
    - ``version_checks``: lines at which it stops unless TensorFlow fits a specifier
    """

    path: str
    imports: tuple[Import, ...] = ()
    python2: int | None = None
    broken: int | None = None
    minimum_python: str = "3.0"
    maximum_python: str = ""
    program_line: int = 0
    is_script: bool = False
    is_notebook: bool = False
    tensorflow: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    windows: tuple[int, ...] = ()
    renders: tuple[int, ...] = ()
    scipy_misc: tuple[int, ...] = ()
    path_appends: tuple[str, ...] = ()
    commands: tuple[tuple[int, str], ...] = ()
    removed_names: tuple[str, ...] = ()
    version_checks: tuple[tuple[int, str], ...] = ()


def encode_facts(facts: SourceFacts) -> str:
    """Return facts as JSON that `decode_facts` reads."""
    return json.dumps(vars(facts))


def decode_facts(text: str) -> SourceFacts:
    """Return the facts in a line of the program's output."""
    values = json.loads(text)
    values["imports"] = tuple(
        Import(module, level, tuple(names), line, kind)
        for module, level, names, line, kind in values["imports"]
    )
    values["tensorflow"] = {sign: tuple(lines) for sign, lines in values["tensorflow"].items()}
    for name in ("commands", "version_checks"):
        values[name] = tuple((line, text) for line, text in values[name])
    for name in ("windows", "renders", "scipy_misc", "path_appends", "removed_names"):
        values[name] = tuple(values[name])
    return SourceFacts(**values)
