"""Read the versions that a repository states: requirement files, README, Dockerfile, CI."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from imgbuild.adopt.closure import Entry
from imgbuild.adopt.declarations import (
    Groups,
    read_conda_list,
    read_conda_text,
    read_pipfile,
    read_pyproject,
    read_setup_cfg,
    read_setup_py,
)
from imgbuild.adopt.history import History
from imgbuild.adopt.prose import (
    FoundVersion,
    find_checks,
    find_installed_names,
    find_installs,
    find_python,
    find_tensorflow,
)
from imgbuild.adopt.repository import Evidence, Repository
from imgbuild.adopt.source_facts import SourceFacts
from imgbuild.core.other_formats import is_conda_file, is_conda_list
from imgbuild.extend.conda_file import convert_entry
from imgbuild.locks.requirement_rules import (
    TENSORFLOW_NAMES,
    logical_lines,
    parse_line,
    repair_line,
    tensorflow_minors,
)


class Statement(NamedTuple):
    """A statement about the TensorFlow version: ``specifier`` such as ``==1.8`` or ``>=1.3,<2``.

    - ``marker``: PEP 508's condition under which it applies, or empty
    - ``words``: the statement as it stands
    - ``is_near``: False in a folder of another program, and in folders for tests or documentation
    - ``is_implied``: a version of Keras says it, by the TensorFlow that this Keras needs
    """

    kind: str
    specifier: str
    evidence: Evidence
    by_bot: bool = False
    marker: str = ""
    words: str = ""
    is_near: bool = True
    is_implied: bool = False

    @property
    def minor(self) -> str:
        """The minor version that it names, for example ``1.8``; empty for bounds."""
        minors = tensorflow_minors(SpecifierSet(self.specifier))
        return minors[0] if minors else ""


class RequestedLine(NamedTuple):
    """A line that asks for a package, as it stands in the repository.

    ``constrains``: it only gives the version of a package that is needed otherwise, such as by an
    import; it comes from a file of constraints, or from a command in a Dockerfile or README.
    """

    text: str
    evidence: Evidence
    constrains: bool = False


#: Patterns of file names by kind, the kinds in the order of their weight.
_DECLARATIONS: Mapping[str, tuple[str, ...]] = {
    "requirements": ("*requirement*.txt", "*requirement*.pip", "*require*.txt", "*.requirements"),
    "environment.yml": ("*.yml", "*.yaml"),
    "Pipfile": ("Pipfile",),
    "pyproject.toml": ("pyproject.toml",),
    "setup.cfg": ("setup.cfg",),
    "setup.py": ("setup.py",),
}
_PROSE: Mapping[str, tuple[str, ...]] = {
    "Dockerfile": ("Dockerfile*", "*.Dockerfile", "*.dockerfile", "Singularity*", "*.def"),
    "README": ("README*", "readme*", "Readme*", "INSTALL*", "install*.md"),
    "CI": (".travis.yml", "tox.ini", ".gitlab-ci.yml", "azure-pipelines.yml", "appveyor.yml"),
    "script": ("install*.sh", "setup*.sh", "Makefile", "docker-compose*.yml", "floyd.yml"),
}
_WORKFLOW = re.compile(r"\.github/workflows/[^/]+\.ya?ml|\.circleci/config\.yml")
_PROSE_ENDINGS = ("", ".md", ".rst", ".txt", ".markdown", ".mkd", ".org")
_READERS: Mapping[str, Callable[[str], Groups]] = {
    "environment.yml": read_conda_text,
    "Pipfile": read_pipfile,
    "pyproject.toml": read_pyproject,
    "setup.cfg": read_setup_cfg,
    "setup.py": read_setup_py,
}
#: Folders that stand for the folder above them.
_HELPERS = {
    ".circleci", ".devcontainer", ".github", "binder", ".binder", "ci", "conda", "docker", "env",
    "environment", "environments", "envs", "install", "requirements", "requirement", "scripts",
    "setup", "workflows",
}  # fmt: skip
#: Folders that say little about the programs elsewhere.
_ASIDE = {
    "doc", "docs", "documentation", "example", "examples", "external", "lib", "test", "tests",
    "third_party", "thirdparty", "vendor", "website", "www",
}  # fmt: skip
#: Names of requirement files that are not for the program itself.
_TOOLS = re.compile(
    r"(?:^|[-_./])(?:dev|develop|tests?|testing|docs?|lint|ci|style|build)(?=[-_.]|$)"
)
#: Names of TensorFlow in requirement files.
_TENSORFLOW = {*TENSORFLOW_NAMES, "intel-tensorflow", "tensorflow-rocm-enhanced"}
#: The TensorFlow of a release of Keras, by the first minor. From 2.5 to 2.15, their minors are the
#: same. Source: the release notes of Keras.
_OF_KERAS = (
    ((3, 0), ">=2.16"),
    ((2, 16), ">=2.16"),
    ((2, 5), "=={}"),
    ((2, 4), ">=2.2,<2.5"),
    ((2, 3), ">=1.13,<2.2"),
    ((0, 0), "<2"),
)
_GLUED = re.compile(r"tensorflow(?:[-_]gpu)?-[0-9]")
_CONDA_PIN = re.compile(r"[\w.-]+=[^=]\S*")
#: A requirement file in a command of a README.
_NAMED_FILE = re.compile(r"\s-r[ =]([\w./-]{1,200}\.(?:txt|pip))")
_INCLUDE = re.compile(r"(-r|-c|--requirement|--constraint)[ =]?\s{0,20}([^\s\0]+)")
#: A variable of a Dockerfile with its value.
_ARGUMENT = re.compile(
    r"^[ \t]{0,9}(?:ARG|ENV)[ \t]{1,9}(\w{1,60})[= ]([\w.+-]{1,60})", re.MULTILINE
)
#: Limits: files of a kind, included files, and lines of all of them.
_MOST_FILES, _MOST_INCLUDES, _MOST_LINES = 300, 50, 2000
#: Limits: statements of a file, and of all files, and notes.
_MOST_OF_FILE, _MOST_STATEMENTS, _MOST_NOTES = 50, 500, 50
#: Limits: characters of a file that is parsed, and of all such files.
_LARGEST_PARSED, _MOST_PARSED = 100_000, 1_000_000
#: Limit for the Python versions of a README that are compared.
_MOST_PYTHONS = 20


def find_declarations(repository: Repository) -> dict[str, str]:
    """Return the files that ask for packages, and their kinds, nearest the root first."""
    kinds: dict[str, str] = {}
    for kind, patterns in _DECLARATIONS.items():
        for path in repository.match(*patterns)[:_MOST_FILES]:
            if kind != "environment.yml" or _is_conda_file(repository, path):
                kinds.setdefault(path, kind)
    for path in repository.files:
        folder, name = posixpath.split(path)
        if posixpath.basename(folder) == "requirements" and name.endswith(".txt"):
            kinds.setdefault(path, "requirements")
    nearest = sorted(kinds, key=lambda path: path.count("/"))[:_MOST_FILES]
    return dict(_limit_parsing(repository, [(path, kinds[path]) for path in nearest]))


def _limit_parsing(
    repository: Repository, kinds: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield the files whose parsers take a bounded time; add a note about others."""
    left = _MOST_PARSED
    for path, kind in kinds:
        size = len(repository.read_text(path)) if kind in _READERS else 0
        if size > min(left, _LARGEST_PARSED):
            repository.note(f"{path}: not read, too large to be parsed")
        else:
            left -= size
            yield path, kind


def _is_conda_file(repository: Repository, path: str) -> bool:
    name = posixpath.basename(path).lower()
    return "env" in name or "conda" in name or is_conda_file(repository.read_text(path))


def read_statements(
    repository: Repository,
    history: History,
    entry: Entry | None,
    sources: Sequence[SourceFacts] = (),
) -> tuple[Statement, ...]:
    """Return the statements about the TensorFlow version, the nearest to the entry first.

    If a bot changed a file last, the statement of the version before it is returned, and the bot's
    also. ``sources`` are the program's files, whose comments, assertions and commands are read.
    """
    statements: list[Statement] = []
    for path, kind in find_declarations(repository).items():
        current = _declared_versions(kind, path, repository.read_text(path))
        if path in history.bot_files:
            own = _declared_versions(kind, path, history.bot_files[path])
            known = {statement.specifier for statement in own}
            by_bot = [item._replace(by_bot=True) for item in current if item.specifier not in known]
            current = [*own, *by_bot]
        statements += current
    for path, kind in _find_prose(repository).items():
        text = _prose_text(kind, repository.read_text(path))
        statements += _prose_statements(kind, path, find_tensorflow(text))
    for source in sources[:_MOST_FILES]:
        statements += _read_code(repository, source)
    distance = _measure_distances(repository, entry, sources)
    statements = [
        item._replace(is_near=distance(item.evidence.path)[0] == 0) for item in statements
    ]
    kinds = [*_DECLARATIONS, *_PROSE, "code", "check"]
    ordered = sorted(
        statements,
        key=lambda item: (
            *distance(item.evidence.path),
            kinds.index(item.kind),
            _file_rank(item.evidence.path),
            item.by_bot,
            item.evidence,
        ),
    )
    return tuple([*dict.fromkeys(ordered)][:_MOST_STATEMENTS])


def _read_code(repository: Repository, source: SourceFacts) -> Iterator[Statement]:
    """Yield the statements of a file's comments and assertions, or of a notebook's commands."""
    for cell, command in source.commands:
        yield from _prose_statements("code", source.path, find_tensorflow(command), cell)
    for line, specifier in source.version_checks:
        yield Statement("check", specifier, Evidence(source.path, line))
    if not source.is_notebook:
        checks = find_checks(repository.read_text(source.path))
        for statement in _prose_statements("code", source.path, checks):
            if not statement.specifier.startswith("==0."):  # the comment is older than the code
                yield statement


def _declared_versions(kind: str, path: str, text: str) -> list[Statement]:
    statements = []
    for lines in _read_groups(kind, text).values():
        for number, line in lines:
            evidence = Evidence(path, number)
            requirement = parse_line(repair_line(line)[0])
            name = canonicalize_name(requirement.name) if requirement else ""
            if requirement and name in _TENSORFLOW:
                if requirement.specifier:
                    statements.append(_declared_statement(kind, evidence, line, requirement))
            elif requirement and name == "keras":
                statements += _implied_statements(kind, evidence, line, requirement)
            elif not requirement or requirement.url or _GLUED.match(line):
                statements += _prose_statements(kind, path, find_tensorflow(line), number)
            if len(statements) >= _MOST_OF_FILE:
                return statements
    return statements


def _declared_statement(
    kind: str, evidence: Evidence, line: str, requirement: Requirement
) -> Statement:
    marker = str(requirement.marker or "")
    return Statement(kind, str(requirement.specifier), evidence, marker=marker, words=line[:80])


def _implied_statements(
    kind: str, evidence: Evidence, line: str, requirement: Requirement
) -> Iterator[Statement]:
    """Yield the TensorFlow that a pinned Keras needs."""
    pins = [item.version for item in requirement.specifier if item.operator == "=="]
    match = re.match(r"([0-9]{1,3})\.([0-9]{1,3})", pins[0]) if pins else None
    if match:
        version = (int(match[1]), int(match[2]))
        specifier = next(text for first, text in _OF_KERAS if version >= first)
        specifier = specifier.format(match[0])
        yield Statement(kind, specifier, evidence, words=line[:80], is_implied=True)


def _prose_statements(
    kind: str, path: str, versions: Iterable[FoundVersion], place: int | None = None
) -> Iterator[Statement]:
    """Yield the versions of a text, which is a file or the line or cell ``place`` of it."""
    for line, specifier, words in versions:
        evidence = Evidence(path, line if place is None else place)
        yield Statement(kind, specifier, evidence, words=words[:80])


@lru_cache(maxsize=2 * _MOST_FILES)
def _read_groups(kind: str, text: str) -> Groups:
    """Return the lines of a file that asks for packages, by group; see `declarations`."""
    if kind in _READERS:
        return _READERS[kind](text)
    if is_conda_list(text):
        return read_conda_list(text)
    return {"": [*islice(logical_lines(text), _MOST_LINES)]}


def _find_prose(repository: Repository) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for kind, patterns in _PROSE.items():
        for path in repository.match(*patterns)[:_MOST_FILES]:
            _, ending = posixpath.splitext(posixpath.basename(path))
            if kind != "README" or ending.lower() in _PROSE_ENDINGS:
                kinds.setdefault(path, kind)
    for path in repository.files:
        if _WORKFLOW.fullmatch(path):
            kinds.setdefault(path, "CI")
    return kinds


def _prose_text(kind: str, text: str) -> str:
    """Return the text of a file; in a Dockerfile, values replace the arguments."""
    if kind != "Dockerfile":
        return text
    values: dict[str, str] = {}
    for match in _ARGUMENT.finditer(text):
        values.setdefault(match[1], match[2])
    return re.sub(
        r"\$\{?(\w{1,60})(?::-[\w.-]{0,60})?\}?", lambda match: values.get(match[1], ""), text
    )


def _measure_distances(
    repository: Repository, entry: Entry | None, sources: Sequence[SourceFacts] = ()
) -> Callable[[str], tuple[int, int]]:
    """Return how to measure the distance of a file.

    Files that a README names are near, and so are files in a folder above the program's files.
    """
    home = entry.path if entry else ""
    named = set()
    folders: set[str] = set()
    for source in sources:
        parts = source.path.split("/")[:-1]
        folders |= {"/".join(parts[:length]) for length in range(1, len(parts) + 1)}
    for path, kind in _find_prose(repository).items():
        if kind in {"README", "Dockerfile"} and _distance(path, home)[0] == 0:
            for match in _NAMED_FILE.finditer(repository.read_text(path)):
                named.add(posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1])))

    def distance(path: str) -> tuple[int, int]:
        is_other, steps = _distance(path, home)
        is_near = path in named or posixpath.dirname(path) in folders
        return (0 if is_near else is_other), steps

    return distance


def _distance(path: str, home: str) -> tuple[int, int]:
    """Return how far a file is from the entry: 1 if it is about something else, then steps."""
    folders = path.split("/")[:-1]
    own = home.split("/")[:-1]
    aside = any(folder.lower() in _ASIDE for folder in folders if folder not in own)
    while folders and folders[-1].lower() in _HELPERS and folders != own[: len(folders)]:
        folders.pop()
    common = 0
    for folder, other in zip(folders, own, strict=False):
        if folder != other:
            break
        common += 1
    up, down = len(own) - common, len(folders) - common
    return int(aside or bool(up and down)), up + 2 * down


def _file_rank(path: str) -> tuple[int, int, str]:
    """Return the order of files of one kind in one folder: requirements.txt, others, tools."""
    name = posixpath.basename(path).lower()
    usual = name in {"requirements.txt", "requirement.txt", "environment.yml", "environment.yaml"}
    gpu = "gpu" in name or "tpu" in name
    rank = 3 if _is_for_tools(name) else 2 if gpu else 0 if usual else 1
    return rank, len(name), name


def read_requested(
    repository: Repository,
    history: History,
    entry: Entry | None,
    sources: Sequence[SourceFacts] = (),
) -> tuple[tuple[RequestedLine, ...], tuple[str, ...]]:
    """Return the requirement lines of the file nearest to the entry, and notes.

    Included files of the same repository are read, others are not. Extras are ignored. ``sources``
    are the program's files.
    """
    notes: list[str] = []
    distance = _measure_distances(repository, entry, sources)
    kinds = find_declarations(repository)
    order = [*_DECLARATIONS]
    paths = sorted(
        (path for path in kinds if distance(path)[0] == 0 and not _is_for_tools(path)),
        key=lambda path: (distance(path)[1], order.index(kinds[path]), _file_rank(path)),
    )
    for path in paths:
        lines = [*_read_requests(repository, history, path, kinds[path], notes)]
        if lines:
            folder = posixpath.dirname(path)
            others = [other for other in paths if posixpath.dirname(other) == folder]
            others.remove(path)
            if others:
                notes.append(f"{path} is used, not {', '.join(others[:5])}")
            return tuple(lines), tuple(notes)
    return _read_installs(repository, distance), tuple(notes)


def _is_for_tools(path: str) -> bool:
    return bool(_TOOLS.search(posixpath.basename(path).lower()))


def _read_installs(
    repository: Repository, distance: Callable[[str], tuple[int, int]]
) -> tuple[RequestedLine, ...]:
    """Return the versions in commands of pip and conda; names alone say less than imports."""
    lines: dict[str, RequestedLine] = {}
    for path, kind in _find_prose(repository).items():
        if kind in {"Dockerfile", "README", "script"} and distance(path)[0] == 0:
            for number, text in find_installs(_prose_text(kind, repository.read_text(path))):
                line = convert_entry(text) if _CONDA_PIN.fullmatch(text) else text
                name = canonicalize_name(re.split(r"[\[=<>~!]", line)[0])
                if name not in {"", "python"}:
                    place = Evidence(path, number)
                    lines.setdefault(name, RequestedLine(line, place, constrains=True))
    return tuple([*lines.values()][:_MOST_LINES])


def read_named_packages(repository: Repository, sources: Iterable[SourceFacts]) -> frozenset[str]:
    """Return the packages that a repository asks for anywhere, by canonical name.

    Files for other programs, extras, and commands in texts and notebooks count.
    """
    names: set[str] = set()
    for path, kind in find_declarations(repository).items():
        for lines in _read_groups(kind, repository.read_text(path)).values():
            requirements = [parse_line(repair_line(line)[0]) for _, line in lines]
            names |= {item.name for item in requirements if item and not item.url}
    for path, kind in _find_prose(repository).items():
        text = _prose_text(kind, repository.read_text(path))
        names.update(islice(find_installed_names(text), _MOST_LINES))
    for source in sources:
        for _, command in source.commands:
            names.update(find_installed_names(command))
    return frozenset(str(canonicalize_name(name)) for name in names)


def _read_requests(
    repository: Repository, history: History, path: str, kind: str, notes: list[str]
) -> Iterator[RequestedLine]:
    """Yield the lines of a file, and of the files that it includes, each file once."""
    known, pending, count = {path}, [(path, False)], 0
    while pending and count < _MOST_LINES:
        here, constrains = pending.pop(0)
        text = repository.read_text(here)
        if here in history.bot_files:
            text = history.bot_files[here]
            notes.append(f"{here}: a bot changed it last; the version before is used")
        for number, line in _read_groups(kind, text).get("", []):
            place = Evidence(here, number)
            if include := _INCLUDE.fullmatch(line):
                target = _resolve_include(repository, place, include[2], notes)
                if target and target not in known and len(known) < _MOST_INCLUDES:
                    known.add(target)
                    pending.append((target, constrains or include[1] in {"-c", "--constraint"}))
            elif not _is_python(line):
                count += 1
                yield RequestedLine(line, place, constrains)
        kind = "requirements"


def _resolve_include(repository: Repository, place: Evidence, name: str, notes: list[str]) -> str:
    """Return the included file; empty, with a note, if it is outside the repository."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place.path), name))
    if target in repository.files:
        return target
    if len(notes) < _MOST_NOTES:
        notes.append(f"{place}: {name[:80]} is not a file of the repository")
    return ""


def _is_python(line: str) -> bool:
    requirement = parse_line(line)
    return bool(requirement and requirement.name == "python")


def read_stated_python(repository: Repository) -> tuple[Evidence, str] | None:
    """Return the Python that the repository asks for, as a specifier, or None.

    Files that ask for packages come first, then ``runtime.txt`` and ``.python-version``, then text.
    """
    for path, kind in find_declarations(repository).items():
        for number, line in _read_groups(kind, repository.read_text(path)).get("", []):
            requirement = parse_line(line)
            if requirement and requirement.name == "python" and requirement.specifier:
                return Evidence(path, number), str(requirement.specifier)
    for path in repository.match("runtime.txt", ".python-version")[:_MOST_FILES]:
        if match := re.match(r"\s{0,9}(?:python-)?([23]\.\d{1,2})", repository.read_text(path)):
            return Evidence(path, 1), f"=={match[1]}.*"
    for path in _find_prose(repository):
        if _distance(path, "")[0]:
            continue
        versions = [*islice(find_python(repository.read_text(path)), _MOST_PYTHONS)]
        if versions:
            number, specifier, _ = max(versions, key=lambda version: "3" in version[1][:4])
            return Evidence(path, number), specifier
    return None
