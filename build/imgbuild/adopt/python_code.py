"""Read the facts of Python files and notebooks without running them.

`imgbuild.adopt.closure` runs this module as a program, because Python's parser can use a lot of
time and memory, or crash, for a hostile source. Each line of the input is JSON, ``[path, text]``.
Each line of the output has the facts of a source, in the same order.
"""

import ast
import dataclasses
import json
import re
import resource
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from imgbuild.adopt.python2_syntax import PARSER_ERRORS, find_python2
from imgbuild.adopt.source_facts import SourceFacts, encode_facts
from imgbuild.adopt.source_names import resolve_names

#: Limits of the program: seconds of CPU for a source, and bytes of memory.
SOURCE_SECONDS, MEMORY_BYTES = 10.0, 2 << 30
#: Limits: commands of a notebook, characters of a command.
_MOST_COMMANDS, _LONGEST_COMMAND = 200, 300


def read_source(path: str, text: str) -> SourceFacts:
    """Read the facts of a Python file. The path is relative to the repository.

    The signs of a TensorFlow version are:

    - of 1.x: contrib, session, placeholder, layers1, get_variable, flags1, eager1
      (``enable_eager_execution``), examples1 (``tensorflow.examples``), other1 (for example
      ``tf.train.AdamOptimizer``)
    - of 2.x: function, tape, tf.keras, autotune, tf.config
    - of 0.x: removed0 (calls that 1.0 removed), deprecated0 (calls of 0.x that 1.15 still has)
    - against 0.x: since1 (calls that 1.0 brought), since0.12 (new spellings), guards0
      (places that choose by version)
    - compat.v1; keras (the standalone package); tensorflow (its imports)
    """
    try:
        body, maximum = _parse(text)
    except PARSER_ERRORS as error:
        return _explain_error(path, text, error)
    facts = resolve_names(path, [(body, 0)])
    return dataclasses.replace(facts, maximum_python=maximum)


def _parse(text: str) -> tuple[list[ast.stmt], str]:
    """Return the statements of a text, and the newest Python that parses it if it is an old one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text).body, ""
        except SyntaxError:
            if not re.search(r"\b(?:async|await)\b", text):
                raise
        return ast.parse(text, feature_version=(3, 6)).body, "3.6"


def _explain_error(path: str, text: str, error: Exception, line: int = 0) -> SourceFacts:
    """Tell whether a source that does not parse is Python 2. ``line``: the cell of a notebook."""
    old = find_python2(text)
    if old is None and isinstance(error, TabError):
        old = error.lineno or 1
    if old is not None:
        return SourceFacts(path, python2=line or old)
    place = error.lineno if isinstance(error, SyntaxError) else None
    return SourceFacts(path, broken=line or place or 1)


def read_notebook(path: str, text: str) -> SourceFacts:
    """Read the facts of a notebook, with the number of a code cell as line.

    Magics and commands of a shell are no code. A notebook of another language has no facts.
    """
    nothing = SourceFacts(path, broken=1, is_notebook=True)
    try:
        document = json.loads(text)
        cells = [*_code_cells(document)]
    except (ValueError, RecursionError, MemoryError):
        return nothing
    if not isinstance(document, dict):
        return nothing
    if not _is_python(document):
        return dataclasses.replace(nothing, broken=None)
    bodies, commands = list[tuple[list[ast.stmt], int]](), []
    python2 = broken = None
    for number, cell in enumerate(cells, 1):
        code, lines = _remove_magics(cell)
        commands += [(number, line[:_LONGEST_COMMAND]) for line in lines]
        try:
            bodies.append((_parse(code)[0], number))
        except PARSER_ERRORS as error:
            facts = _explain_error(path, code, error, number)
            python2, broken = python2 or facts.python2, broken or facts.broken
    facts = resolve_names(path, bodies)
    return dataclasses.replace(
        facts,
        python2=python2,
        broken=broken,
        is_notebook=True,
        program_line=0,
        is_script=False,
        commands=tuple(commands[:_MOST_COMMANDS]),
    )


def _code_cells(document: object) -> Iterator[str]:
    """Yield the text of each code cell, in the formats 4 and 3.

    Source: nbformat's documentation, "The Notebook file format".
    """
    if not isinstance(document, dict):
        return
    parts = [document]
    worksheets = document.get("worksheets")
    if isinstance(worksheets, list):
        parts += [part for part in worksheets if isinstance(part, dict)]
    for part in parts:
        cells = part.get("cells")
        for cell in cells if isinstance(cells, list) else ():
            if isinstance(cell, dict) and cell.get("cell_type") == "code":
                source = cell.get("source", cell.get("input", ""))
                lines = source if isinstance(source, list) else [source]
                yield "".join(line for line in lines if isinstance(line, str))


def _is_python(document: Mapping[str, Any]) -> bool:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return True
    for key, name in (("kernelspec", "language"), ("language_info", "name")):
        part = metadata.get(key)
        language = part.get(name) if isinstance(part, dict) else None
        if isinstance(language, str) and language:
            return language.lower().startswith(("python", "ipython"))
    return True


_MAGIC = re.compile(r"^([ \t]*)([%!?].*|[\w.]+[ \t]*\?{1,2}[ \t]*)$")
_ASSIGNED_MAGIC = re.compile(r"^([ \t]*[\w.,\[\] \t]+=[ \t]*)[!%][A-Za-z].*$")
_PYTHON_CELL = re.compile(r"%%(?:time|timeit|capture|prun|python3?|debug)\b")


def _remove_magics(cell: str) -> tuple[str, list[str]]:
    """Return a cell's Python code, and its magics and commands of a shell."""
    lines = cell.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    commands = []
    if lines[first].lstrip().startswith("%%"):
        commands.append(lines[first].strip())
        if not _PYTHON_CELL.match(commands[0]):
            commands += [line.strip() for line in lines[first + 1 :] if line.strip()]
            return "", commands
        lines[first] = ""
    elif not re.search(r"[%!?]", cell):
        return cell, []
    else:
        try:
            _parse(cell)
        except PARSER_ERRORS:
            pass
        else:
            return cell, []
    for number, line in enumerate(lines):
        if match := _MAGIC.match(line):
            lines[number] = f"{match[1]}pass"
            commands.append(match[2].strip())
        elif match := _ASSIGNED_MAGIC.match(line):
            lines[number] = f"{match[1]}None"
            commands.append(line[match.end(1) :].strip())
    return "\n".join(lines), commands


def main(seconds: float) -> None:
    """Answer the requests on standard input, within limits for each source and for all."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The default action also ends the parser, which a handler in Python would wait for.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    for line in sys.stdin.buffer:
        path, text = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, SOURCE_SECONDS)
        is_notebook = path.endswith(".ipynb")
        facts = read_notebook(path, text) if is_notebook else read_source(path, text)
        answer = encode_facts(facts)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
