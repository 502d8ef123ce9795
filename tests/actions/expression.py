"""What ``${{ … }}`` says: the part of GitHub's expressions that these workflows use.

After https://docs.github.com/en/actions/reference/workflows-and-actions/expressions. What is not
known here (a context, a name in it, a function, an operator) is an error, never an empty string:
GitHub would go on with nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actions.values import ExpressionError, as_text, equal, part, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>==|!=|&&|\|\||[!()\[\].,*]))"
)
_INSERTED = re.compile(r"\$\{\{((?:(?!\}\}).)*)\}\}", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Scope:
    """What names stand for: contexts such as ``github``, and functions such as ``always``."""

    contexts: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]]

    def value(self, text: str) -> Any:
        """Return the value of an expression, without ``${{ }}``."""
        return _Parser(_tokens(text), self).whole()

    def text(self, template: object) -> Any:
        """Return a value of the YAML with its expressions evaluated.

        A text that is one expression and nothing else keeps the type of its value.
        """
        if not isinstance(template, str):
            return template
        alone = _INSERTED.fullmatch(template.strip())
        if alone:
            return self.value(alone[1])
        return _INSERTED.sub(lambda found: as_text(self.value(found[1])), template)

    def condition(self, text: object) -> bool:
        """Return what an ``if`` says; as on GitHub, ``${{ }}`` may be left out."""
        words = str(text).strip()
        alone = _INSERTED.fullmatch(words)
        return truth(self.value(alone[1] if alone else words))


def expressions(text: str) -> list[str]:
    """Return what stands in each ``${{ }}`` of a text."""
    return [found.strip() for found in _INSERTED.findall(text)]


def _format(template: str, *values: Any) -> str:
    return re.sub(r"\{(\d+)\}", lambda found: as_text(values[int(found[1])]), template)


def _contains(where: Any, what: Any) -> bool:
    if isinstance(where, list):
        return any(equal(one, what) for one in where)
    return as_text(what).lower() in as_text(where).lower()


#: The functions that need to know nothing of the run.
PURE: Mapping[str, Callable[..., Any]] = {
    "contains": _contains,
    "format": _format,
    "fromJSON": json.loads,
    "join": lambda values, between=",": str(between).join(as_text(value) for value in values),
}


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if not match:
            raise ExpressionError(f"not understood: {text[place:].strip()!r} in {text.strip()!r}")
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        place = match.end()
    return found


class _Parser:
    """Evaluates while it reads: ``||`` below ``&&`` below ``==`` below ``!`` below a value."""

    def __init__(self, tokens: list[tuple[str, str]], scope: Scope) -> None:
        self.tokens, self.scope, self.place = tokens, scope, 0

    def whole(self) -> Any:
        value = self.any_of()
        if self.place != len(self.tokens):
            raise ExpressionError(f"not understood: {self.tokens[self.place][1]!r}")
        return value

    def any_of(self) -> Any:
        value = self.all_of()
        while self.taken("||"):
            other = self.all_of()
            value = value if truth(value) else other
        return value

    def all_of(self) -> Any:
        value = self.comparison()
        while self.taken("&&"):
            other = self.comparison()
            value = other if truth(value) else value
        return value

    def comparison(self) -> Any:
        value = self.negation()
        if self.taken("=="):
            return equal(value, self.negation())
        if self.taken("!="):
            return not equal(value, self.negation())
        return value

    def negation(self) -> Any:
        return not truth(self.negation()) if self.taken("!") else self.operand()

    def operand(self) -> Any:
        kind, text = self.next()
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            return float(text) if "." in text else int(text)
        if text == "(":
            value = self.any_of()
            self.demand(")")
            return value
        if kind != "name":
            raise ExpressionError(f"not understood: {text!r}")
        return self.named(text)

    def named(self, name: str) -> Any:
        if name in _WORDS:
            return _WORDS[name]
        if self.taken("("):
            return self.call(name)
        if name not in self.scope.contexts:
            raise ExpressionError(f"there is no context {name!r} here")
        return self.parts_of(self.scope.contexts[name], name)

    def call(self, name: str) -> Any:
        arguments: list[Any] = []
        while not self.taken(")"):
            arguments.append(self.any_of())
            self.taken(",")
        if name not in self.scope.functions:
            raise ExpressionError(f"the function {name} is not known here")
        return self.parts_of(self.scope.functions[name](*arguments), f"{name}()")

    def parts_of(self, value: Any, name: str) -> Any:
        while True:
            if self.taken("."):
                if self.taken("*"):
                    return self.each_of(value, name)
                key: Any = self.next()[1]
            elif self.taken("["):
                key = self.any_of()
                self.demand("]")
            else:
                return value
            value, name = part(value, key, name), f"{name}.{key}"

    def each_of(self, value: Any, name: str) -> list[Any]:
        self.demand(".")
        key = self.next()[1]
        return [part(one, key, f"{name}.*") for one in dict(value).values()]

    def next(self) -> tuple[str, str]:
        if self.place == len(self.tokens):
            raise ExpressionError("it ends too early")
        self.place += 1
        return self.tokens[self.place - 1]

    def taken(self, sign: str) -> bool:
        here = self.place < len(self.tokens) and self.tokens[self.place] == ("sign", sign)
        self.place += here
        return here

    def demand(self, sign: str) -> None:
        if not self.taken(sign):
            raise ExpressionError(f"{sign} is missing")
