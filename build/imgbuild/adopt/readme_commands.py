"""Find the commands in READMEs and shell scripts that start Python programs."""

import re
import shlex
from collections.abc import Collection, Iterator, Sequence

#: Limit for the characters of a text.
_LONGEST_TEXT = 300_000
#: Limits: characters of a line, lines that a backslash joins, commands of a file, words and
#: characters of a command's arguments.
_LONGEST_LINE, _MOST_JOINED, _MOST_COMMANDS, _MOST_WORDS, _LONGEST_WORD = 4000, 40, 300, 100, 500
_PYTHON = re.compile(r"(?<![\w./-])python(?:[23](?:\.\d{1,2})?)?(?:\.exe)?[ \t]+(?=[^ \t])")
_JUPYTER = re.compile(r"(?<![\w./-])(?:jupyter|ipython)[- \t]+(?:notebook|lab)[ \t]+(?=[^ \t])")
_WINDOWS_PATH = re.compile(r"(?<=[\w.])\\(?=[\w.])")
#: A gap for the reader, with blanks in it.
_GAP = re.compile(r"<[^<>\n]*>|\[[^\[\]\n]*\s[^\[\]\n]*\]")
_SCRIPT = re.compile(r"(?<![\w./-])(?=\./[\w./-]+(?:\s|$))")
_CHANGE_FOLDER = re.compile(r"(?<![\w./-])cd[ \t]+([\w./@~+-]+)")
_SEPARATOR = re.compile(r"&&|\|\||[;|]|</|<br ?/?>|\s\(|\s#\s|\s[0-9&]?>{1,2}|\s<\s|\s&(?=\s|$)")
#: The text before a command: a prompt, variables, and programs that start other programs.
_BEFORE = re.compile(
    r"(?:\s|[#$%>!*+-]|\d+[.)]|\([\w-]{1,40}\)|<[a-z]{1,10}>|[A-Za-z_]\w*=[^\s]*|sudo|nohup|time|exec|env"
    r"|(?:mpirun|mpiexec|horovodrun|xvfb-run)(?:\s+-{1,2}[\w-]+(?:\s+[\d\w.:]+)?)*)*+"
)
#: Options of Python with a value.
_VALUED = ("-W", "-X", "-Q")
_NAME_OF_PATH = r"(?:PATH|DIR|DIRECTORY|FILE|FILENAME|FOLDER|ROOT|NAME|URL|KEY|ID)"
_PLACEHOLDER = re.compile(
    rf".*(?:[<>$*{{}}…]|\.\.\.).*|(?i:.*(?:your|path[_/-]?to).*|.*[_-]path|x{{2,}})"
    rf"|(?:[A-Z]+_)*{_NAME_OF_PATH}S?(?:_[A-Z]+)*|N|\[.*|[^\[]*\]",
    re.DOTALL,
)

#: Characters of a gap that no option has.
_MARKS = re.compile(r"[<>$*{}…\[\]]|\.\.\.")
#: Every line with a command matches this, so that other lines are skipped fast.
_WORDS = re.compile(r"python|jupyter|cd |\./")
_HELP = {"-h", "--help", "--helpfull"}

#: A command: its line, the folder in which it runs, and its words after ``python`` or ``jupyter``.
Command = tuple[int, str, tuple[str, ...]]


def read_commands(text: str, folders: Collection[str], here: str = "") -> Iterator[Command]:
    """Yield the commands of a text in a folder ``here`` that start Python or Jupyter.

    ``folders`` are all folders of the repository. Earlier commands may ``cd`` to them.
    """
    count, folder = 0, here
    for number, line in _logical_lines(text[:_LONGEST_TEXT]):
        if not _WORDS.search(line):
            continue
        for part, in_quotes in _split_line(line):
            if match := _CHANGE_FOLDER.search(part):
                folder = _change_folder(folder, match[1], folders)
            elif words := _read_words(part, in_quotes=in_quotes):
                yield number, folder, words
                count += 1
            if count >= _MOST_COMMANDS:
                return


def _split_line(line: str) -> Iterator[tuple[str, bool]]:
    """Yield the commands of a line, and whether they are in backquotes."""
    for number, quoted in enumerate(line.split("`")):
        for part in _SEPARATOR.split(quoted):
            yield part, number % 2 == 1


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined by backslashes, with the number of their first line."""
    first, parts = 1, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        first = first if parts else number
        parts.append(line[:_LONGEST_LINE].rstrip())
        if not parts[-1].endswith("\\") or len(parts) >= _MOST_JOINED:
            yield first, " ".join(part.removesuffix("\\") for part in parts)[:_LONGEST_LINE]
            parts = []
    if parts:
        yield first, " ".join(part.removesuffix("\\") for part in parts)[:_LONGEST_LINE]


def _change_folder(folder: str, target: str, folders: Collection[str]) -> str:
    """Return the folder after ``cd``; the repository itself if there is no such folder."""
    parts = folder.split("/") if folder else []
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in {"", "."}:
            parts.append(part)
    joined = "/".join(parts)
    if joined in folders:
        return joined
    plain = target.strip("./")
    return plain if plain in folders else ""


def _read_words(part: str, *, in_quotes: bool) -> tuple[str, ...]:
    """Return the words of a command after its interpreter; empty if it starts none."""
    match = _PYTHON.search(part) or _JUPYTER.search(part) or _SCRIPT.search(part)
    if not match:
        return ()
    rest = _GAP.sub("<>", _WINDOWS_PATH.sub("/", part[match.end() :]))
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    words = [word for word in words[:_MOST_WORDS] if word.isprintable()]
    # A comma belongs to prose that follows the command.
    last = next((number for number, word in enumerate(words) if word.endswith(",")), len(words))
    words = words[:last]
    is_command = _BEFORE.fullmatch(part[: match.start()])
    if not is_command and not in_quotes:
        return tuple(word.rstrip(".,:)") for word in _before_arguments(words))  # prose
    return tuple(words)


def _before_arguments(words: Sequence[str]) -> Sequence[str]:
    """Return the words up to the program, or to the module of ``-m``."""
    if "-m" in words[:2]:
        return words[: words.index("-m") + 2]
    length = next((number for number, word in enumerate(words) if word[0:1] != "-"), 0)
    return words[: length + 1]


def split_words(words: Sequence[str]) -> tuple[str, str, tuple[str, ...], bool]:
    """Return a command's program, its module of ``-m``, its arguments, and whether it has gaps.

    The program need not be a file. A command has gaps if the reader must fill in arguments, or if
    it only prints help.
    """
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        if word == "-m" and position + 1 < len(words):
            return "", words[position + 1], *_drop_gaps(words[position + 2 :])
        if word.startswith("-c"):
            return "", "", (), False
        position += 2 if word in _VALUED else 1
    path = words[position].replace("\\", "/") if position < len(words) else ""
    return path, "", *_drop_gaps(words[position + 1 :])


def _drop_gaps(words: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return arguments without gaps and their options, and whether there were any."""
    kept: list[str] = []
    has_gaps = False
    for word in words:
        name, separator, value = word.partition("=")
        is_option = word.startswith("-")
        if is_option:  # `--image_path` is no gap, and `--<option>` is one
            value = value if separator else "".join(_MARKS.findall(name))
        if len(word) > _LONGEST_WORD or word in {"\\", *_HELP}:
            has_gaps = True
        elif not _PLACEHOLDER.fullmatch(value if is_option else word):
            kept.append(word)
        else:
            has_gaps = True
            if not is_option and kept and kept[-1].startswith("-") and "=" not in kept[-1]:
                kept.pop()
    return tuple(kept), has_gaps
