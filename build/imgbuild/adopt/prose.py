"""Find versions of TensorFlow and Python in text: READMEs, Dockerfiles, CI files and scripts."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from packaging.specifiers import InvalidSpecifier, SpecifierSet

#: A version in a text: its line, a specifier of PEP 440, and the words that state it.
FoundVersion = tuple[int, str, str]
#: Limits for the characters of a line, the lines of a text and the versions of a text.
_LONGEST_LINE, _MOST_LINES, _MOST = 2000, 20_000, 50
#: The newest minor of each major version; a larger number after the name means something else.
_NEWEST_MINOR = {"0": 12, "1": 15, "2": 29}

_LINK = re.compile(r"!?\[([^\[\]]{0,200})\](?:\([^()\s]{0,500}\)|\[[^\[\]]{0,200}\]|_)?")
_TAG = re.compile(r"<(?:[a-zA-Z/][^<>]{0,500}|https?://[^<>]{0,500})>")
_RST_LINK = re.compile(r"`([^`<]{1,200}?)\s?<[^<>`]{0,500}>`_{0,2}")
_ENTITIES = {
    "&nbsp;": " ",
    "&gt;": ">",
    "&lt;": "<",
    "&ge;": ">=",
    "&le;": "<=",
    "≥": ">=",
    "≤": "<=",
}

_NUMBER = r"[vr]?(?P<{0}>[012]\.\d{{1,2}}(?:\.(?:\d{{1,2}}|[xX*]))?|[12]\.[xX*]|[12])(?![\d%]|\.\d)"
_VERSION = _NUMBER.format("version")
_OPERATOR = r"(?P<operator>>=|=>|<=|=<|===?|~=|[=<>^])?"
_SUFFIX = r"(?:[-.]?(?:alpha|beta|a|b|rc)[-.]?\d{0,2})?(?![a-z\d])"
_AND_LATER = (
    r"(?P<later>\s?\+|[\s,(]{0,3}(?:(?:or|and)\s)?"
    r"(?:later|above|higher|newer|greater|up(?:wards)?)\b)"
)
_UPPER = rf"\s?(?:,|and|&)?\s?(?P<upper_operator><=?|=<)\s?{_NUMBER.format('upper')}"
#: Further versions of a list, such as the end of ``1.14, 1.15 or 2.0``.
_NEXT = re.compile(
    rf"\s{{0,3}}(?:,\s?(?:and|or)\s|[,/&]\s?|(?:and|or)\s)(?:tensor\s?flow\s|tf[\s-]?)?"
    rf"{_NUMBER.format('next')}(?!\w|\.\d)",
    re.IGNORECASE,
)
_UNTIL = rf"\s?(?:-|\u2013|~|to|through)\s?{_NUMBER.format('last')}"
_BLANKS = r"[\s:()\[\]|,'\"\u2122-]{0,8}"
_NAME = r"(?<![\w.@])(?:tensor[ -]?flow(?:[-_ (]{0,3}(?:gpu|cpu))?|tf)(?![a-z_])"
_VERSION_WORD = (
    r"(?:(?:api\s|backend\s)?(?:versions?|ver\.|ver|release)\b|api\b|backend\b"
    r"|(?:i\s|we\s)?(?:tested|used?|using|works?|built|developed|trained)(?:\s(?:on|with|in|for))?\b"
    r"|(?P<least>at\sleast|minimum)\b)?"
)
_PROSE = re.compile(
    rf"{_NAME}(?P<blanks>{_BLANKS}){_VERSION_WORD}{_BLANKS}{_OPERATOR}\s{{0,3}}['\"]?"
    rf"{_VERSION}{_SUFFIX}(?:{_AND_LATER}|{_UPPER}|{_UNTIL})?",
    re.IGNORECASE,
)
_REVERSED = re.compile(rf"\bversion\s{_VERSION}\sof\stensorflow\b", re.IGNORECASE)
#: Versions in file names of wheels, tags of images, badges, and variables of CI and Docker files.
_NAMED = (
    re.compile(rf"tensorflow(?:[-_](?:gpu|cpu))?-{_VERSION}{_SUFFIX}-(?:cp|py)\d", re.IGNORECASE),
    re.compile(rf"tensorflow(?:[-_]gpu)?:{_VERSION}", re.IGNORECASE),
    re.compile(
        rf"badge/(?:tensorflow|tf)[-_ ](?:version[-_ ])?{_OPERATOR}\s?{_VERSION}"
        rf"(?:{_AND_LATER})?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:tf|tensorflow)_?(?:gpu_?)?ver(?:sion)?['\"]?\s?[:= ]\s?[\['\"]{{0,2}}"
        rf"{_OPERATOR}{_VERSION}",
        re.IGNORECASE,
    ),
    re.compile(rf"%tensorflow_version\s{_VERSION}"),
    re.compile(rf"\bruntime[-_]?version['\"]?\s?[:= ]\s?['\"]?{_VERSION}", re.IGNORECASE),
)
#: A title with "TensorFlow 2.0" means any release with the optimizers of 2.0.
_TITLE = "<2.11,>=2.0"
_PYTHON = re.compile(
    r"(?<![\w.@/])python(?P<blanks>[\s:()\[\]|,'\"-]{0,6})(?:version\s|ver\.?\s)?"
    r"(?P<operator>>=|=>|<=|===?|~=|[=<>])?\s{0,3}"
    r"v?(?P<version>2\.\d|3\.\d{1,2})(?!\d)(?P<later>\s?\+|\s(?:or|and)\s(?:later"
    r"|above|higher|newer)\b)?",
    re.IGNORECASE,
)
_NEXT_PYTHON = re.compile(
    r"\s?(?:[,/&]|and|or)\s?(?:python\s?)?(2\.\d|3\.\d{1,2})(?!\d|\.\d)(\s?\+)?", re.IGNORECASE
)
#: Words that deny a version before and after it.
_DENIED_BEFORE = re.compile(
    r"\b(?:not|no|never|cannot|without|unless|before|instead of|incompatible|deprecated"
    r"|migrat(?:e|ing)|upgrade to|port(?:ing)? to|from|todo|future|unlike|than|branch)\b"
    r"[^.;:,]{0,45}$"
    r"|n't\b[^.;:,]{0,45}$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"^[^.;,(]{0,30}\b(?:not|unsupported|incompatible|deprecated|doesn't|don't|won't|isn't"
    r"|coming soon)\b|^[^.;,(]{0,60}\bbranch\b",
    re.IGNORECASE,
)


_CHECK = re.compile(
    rf"\bassert\b.{{0,60}}\b(?:tf|tensorflow)\.(?:__version__|VERSION)\)?\s{{0,3}}(?P<operator>==)"
    rf"\s{{0,3}}(?:[\w.]{{1,40}}\()?['\"]{_VERSION}"
)
#: Lines of a program's head that are read for a version.
_HEAD = 60
_INSTALL = re.compile(r"\b(?:pip[23]?|conda)\s(?:install|create)\s([^&;|#`\n]{1,2000})")
_PINNED = re.compile(
    r"[A-Za-z][\w.-]{0,60}(?:\[[\w,]{0,60}\])?(?:==?|>=|<=|~=|<|>)[0-9][\w.*]{0,30}"
)
#: The name of a package in a command, which is no option, file or address.
_INSTALLED = re.compile(r"[A-Za-z0-9][\w.-]{0,60}(?=$|[\[=<>~!;])")
#: Limit for the lines that one command takes.
_MOST_JOINED = 100


def find_tensorflow(text: str) -> Iterator[FoundVersion]:
    """Yield the TensorFlow versions that a text names, at most 50."""
    number = 0
    for line, content in _numbered_lines(text):
        matches = [match for pattern in _NAMED for match in pattern.finditer(unquote(content))]
        plain = _plain_text(content)
        for pattern in () if matches else (_PROSE, _REVERSED):
            matches += [match for match in pattern.finditer(plain) if not _is_denied(match)]
        known, end = set(), 0
        for match in matches:
            if match.string is plain and match.start() < end:
                continue  # it belongs to the list that the match before begins
            specifier, end = _read_specifier(match), _end_of_list(match)
            if specifier == "==2.0" and content.lstrip().startswith("#"):
                specifier = _TITLE
            if specifier and specifier not in known:
                known.add(specifier)
                number += 1
                yield line, specifier, _tidy_words(match[0])
        if number >= _MOST:
            return


def find_checks(text: str) -> Iterator[FoundVersion]:
    """Yield the TensorFlow versions that the comments at the head of a program name, or asserts."""
    is_text = True
    for line, content in _numbered_lines(text):
        for match in _CHECK.finditer(content):
            if specifier := _read_specifier(match):
                yield line, specifier, _tidy_words(match[0])
        is_text = is_text and not re.match(r"(?:import|from)\s", content)
        if line <= _HEAD and (is_text or content.lstrip().startswith("#")):
            for _, specifier, words in find_tensorflow(content):
                yield line, specifier, words


def find_installs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the packages with a version that commands of pip and conda install."""
    return (pair for pair in _installed_words(text) if _PINNED.fullmatch(pair[1]))


def find_installed_names(text: str) -> Iterator[str]:
    """Yield the packages that commands of pip and conda install, without versions."""
    for _, word in _installed_words(text):
        if named := _INSTALLED.match(word):
            yield named[0]


def _installed_words(text: str) -> Iterator[tuple[int, str]]:
    for number, line in _joined_lines(text):
        for match in _INSTALL.finditer(line):
            for word in match[1].replace('"', " ").replace("'", " ").split():
                yield number, word


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines by number; a line that a backslash continues is joined with the next one."""
    parts: list[str] = []
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], 1):
        parts.append(line[:_LONGEST_LINE].removesuffix("\\"))
        if not line.endswith("\\") or len(parts) == _MOST_JOINED:
            yield number - len(parts) + 1, " ".join(parts)
            parts = []


def find_python(text: str) -> Iterator[FoundVersion]:
    """Yield the Python versions that a text names."""
    for line, content in _numbered_lines(text):
        for match in _PYTHON.finditer(_plain_text(content)):
            specifier = f"{_normal_operator(match)}{match['version']}"
            if specifier.startswith("=="):
                specifier += ".*"
            if _is_denied(match):
                continue
            yield line, specifier, match[0].strip()
            following = _NEXT_PYTHON.match(match.string, match.end())
            while following:
                specifier = f">={following[1]}" if following[2] else f"=={following[1]}.*"
                yield line, specifier, following[0].strip(" ,/&")
                following = _NEXT_PYTHON.match(match.string, following.end())


def _numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], 1):
        if line.strip():
            yield number, line[:_LONGEST_LINE]


def _plain_text(line: str) -> str:
    """Return a line without the marks of Markdown, reStructuredText and HTML."""
    line = _RST_LINK.sub(r"\1", line)
    line = _LINK.sub(r"\1 ", line)
    line = _TAG.sub(" ", line)
    for entity, text in _ENTITIES.items():
        line = line.replace(entity, text)
    return line.replace("**", "").replace("`", "")


def _tidy_words(text: str) -> str:
    """Return a quotation without quotes, white space and open parentheses at its ends."""
    words = " ".join(text.replace('"', "").replace("'", "").split()).strip("([|,-")
    return f"{words})" if words.count("(") > words.count(")") else words


def _is_denied(match: re.Match[str]) -> bool:
    text = match.string
    before, after = text[max(0, match.start() - 60) : match.start()], text[match.end() :][:60]
    return bool(_DENIED_BEFORE.search(before) or _DENIED_AFTER.search(after))


def _read_specifier(match: re.Match[str]) -> str:
    """Return the specifier of a match; empty if its number is no version of TensorFlow."""
    groups = match.groupdict()
    version = match["version"].lower().replace("x", "*")
    if not _is_version(version):
        return ""
    operator = _normal_operator(match)
    if groups.get("upper"):
        bound = groups["upper_operator"].replace("=<", "<=")
        specifier = f">={version},{bound}{groups['upper']}"
    elif last := _last_version(match):
        is_major = not last[-1].isdigit()
        end = f"<{int(last[0]) + 1}" if is_major else f"<={last}.99"
        specifier = f">={version},{end}"
    else:
        specifier = _join_version(operator, version)
    try:
        return str(SpecifierSet(specifier))
    except InvalidSpecifier:
        return ""


def _last_version(match: re.Match[str]) -> str:
    """Return the end of a range, or the newest version of a list; empty for a single version."""
    last = match.groupdict().get("last") or ""
    newest, number = match["version"], _NEXT.match(match.string, match.end())
    while number and not last:
        newest = max(newest, number["next"], key=_numbers)
        number = _NEXT.match(match.string, number.end())
    last = last or newest
    is_newer = _is_version(last) and _numbers(last) > _numbers(match["version"])
    return last if is_newer else ""


def _end_of_list(match: re.Match[str]) -> int:
    end = match.end()
    while number := _NEXT.match(match.string, end):
        end = number.end()
    return end


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _is_version(version: str) -> bool:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return not minor.isdigit() or int(minor) <= _NEWEST_MINOR[major]


def _normal_operator(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups.get("later") or groups.get("least"):
        return ">="
    operator = groups.get("operator") or "=="
    return {"=>": ">=", "=<": "<=", "=": "==", "===": "==", "^": ">="}.get(operator, operator)


def _join_version(operator: str, version: str) -> str:
    """Return a specifier; ``1.x`` and ``2`` are any release of this major version."""
    bare = version.removesuffix(".*")
    if operator == "==":
        wide = version != bare or "." not in bare
        return f"=={bare}.*" if wide else f"=={bare}"
    return f"{operator}{bare}" if operator != "~=" or "." in bare else f">={bare}"


#: Words of a line that says where to get something.
_SOURCE = re.compile(r"://|git\b|\binstall|\bclone\b|\bdownload", re.IGNORECASE)
#: Limit for such lines.
_MOST_SOURCES = 200


def find_source_lines(text: str) -> tuple[tuple[int, str], ...]:
    """Return the numbers and words of lines that say where to get something."""
    lines = [(number, line[:_LONGEST_LINE]) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines[:_MOST_LINES] if _SOURCE.search(line)]
    return tuple((number, line.strip(" \t$>#*`-")) for number, line in lines[:_MOST_SOURCES])


def names_package(words: str, name: str) -> bool:
    """Return whether words name a package, perhaps with other hyphens or capitals."""
    parts = [re.escape(part) for part in re.split("[-_.]", name)]
    pattern = rf"(?<![A-Za-z0-9]){'[-_.]?'.join(parts)}(?![A-Za-z0-9])"
    return bool(re.search(pattern, words, re.IGNORECASE))
