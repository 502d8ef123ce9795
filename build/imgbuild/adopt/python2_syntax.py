"""Tell Python 2 from other text that Python 3 does not parse."""

import ast
import re

#: Errors of Python's parser for hostile text.
PARSER_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
#: A string or comment. Its end may be missing, so that no text makes the match backtrack.
_STRING = re.compile(
    r"""(?P<prefix>\b[A-Za-z]{1,2})?(?P<string>"""
    r"""\"\"\"(?:[^"\\]|\\.|"(?!""))*+(?:\"\"\")?"""
    r"""|'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?"""
    r"""|"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?)|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
_START = r"(?:^|[:;])[ \t]*"
_NAMES = r"[\w.]+"
_PYTHON2 = re.compile(
    "|".join(
        (
            rf"{_START}print[ \t]+(?![ \t=.,()\[\]+\-*/%&|^<>!]|(?:is|in|and|or|if|not|for)\b|$)",
            rf"{_START}print[ \t]*>>",
            rf"{_START}print[ \t]+[-+(][^\n]*",
            rf"{_START}print\"",
            rf"{_START}exec[ \t]+(?![ \t=.,)\]])",
            r"[\w)\]\"][ \t]*<>[ \t]*[\w(\[\"-]",
            r"`[^`\n]+`",
            rf"\bexcept[ \t]+(?:{_NAMES}|\([^()\n]*\))[ \t]*,[ \t]*{_NAMES}[ \t]*:",
            rf"{_START}raise[ \t]+{_NAMES}[ \t]*,",
            r"(?<![\w.])0++[1-7][0-7]*+(?![\w.])",
            r"(?<![\w.])(?:0[xX][0-9A-Fa-f]+|[0-9]+)[lL]\b",
            r"\b[uU][rR]\"",
            r"\bdef[ \t]+\w+[ \t]*\((?:[^()\n]*,)?[ \t]*\([ \t]*\w+[ \t]*,",
            r"\blambda[ \t]*\([ \t]*\w+[ \t]*,",
        )
    ),
    re.MULTILINE,
)
#: With brackets, it is Python 2 only if more follows them: ``print ("a"), b`` also parses in 3.
_BRACKETED_PRINT = re.compile(r"[:;]?[ \t]*print[ \t]+[-+(]")


def find_python2(text: str) -> int | None:
    """Return the line of the first syntax that only Python 2 has; None without one.

    Use it only for text that does not parse, because it looks at each line alone.
    """
    plain = _STRING.sub(_blank, text.replace("\r\n", "\n").replace("\r", "\n"))
    for match in _PYTHON2.finditer(plain):
        if _BRACKETED_PRINT.match(match[0].lstrip("\n")) and not _is_print_statement(match[0]):
            continue
        return plain.count("\n", 0, match.end()) + 1
    return None


def _is_print_statement(text: str) -> bool:
    """Tell whether Python 3 refuses a line that begins with ``print (`` or ``print -``."""
    statement = text.strip(" \t:;\n")
    if statement.endswith("\\"):
        return False
    try:
        ast.parse(statement)
    except PARSER_ERRORS:
        # An open bracket says nothing: the line goes on.
        return statement.count("(") == statement.count(")")
    return False


def _blank(match: re.Match[str]) -> str:
    """Return an empty string, or comment, with the same number of lines."""
    if match["comment"]:
        return ""
    return f'{match["prefix"] or ""}"' + "\\\n" * match["string"].count("\n") + '"'
