"""Find the programs of a repository, and the modules that a program imports."""

import json
import posixpath
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from imgbuild.adopt.readme_commands import read_commands, split_words
from imgbuild.adopt.repository import LARGEST_FILE, Evidence, Repository, read_regular_file
from imgbuild.adopt.source_facts import KINDS, Import, SourceFacts, decode_facts
from imgbuild.core.process import run

#: Limits: seconds to parse all sources, characters and files that one process parses.
PARSE_SECONDS = 60.0
_BATCH, _MOST_FILES = 2 << 20, 5000
#: Limits: files of a closure, imports of its files, roots, folders that may have a module.
_MOST_SOURCES, _MOST_IMPORTS, _MOST_ROOTS, _MOST_PLACES = 5000, 50_000, 50, 20
#: Limits: entries, programs whose closures are compared, their imports, and the seconds for that.
_MOST_ENTRIES, _MOST_COMPARED, _MOST_COMPARED_IMPORTS, _COMPARE_SECONDS = 200, 40, 10_000, 10
#: Limit for the READMEs, and for the shell scripts, that are read.
_MOST_TEXTS = 30
#: Limit for the files without a suffix that are searched for programs.
_MOST_PLAIN = 100
#: Starts `imgbuild.adopt.python_code` in a Python without the user's settings and folders.
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1])\n"
_PROGRAM += "from imgbuild.adopt.python_code import main; main(float(sys.argv[2]))"
#: Modules of Python 3 that later releases removed, beside those of the Python that runs imgbuild.
_REMOVED_MODULES = {
    *("_dummy_thread", "aifc", "asynchat", "asyncore", "audioop", "binhex", "cgi", "cgitb"),
    *("chunk", "crypt", "distutils", "dummy_threading", "formatter", "imghdr", "imp", "lib2to3"),
    *("macpath", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "parser", "pipes"),
    *("smtpd", "sndhdr", "spwd", "sunau", "symbol", "telnetlib", "uu", "xdrlib"),
}
_STANDARD = {*sys.stdlib_module_names, *_REMOVED_MODULES, "__main__"}
#: Packages of the image: a folder of this name is used only if Python itself would find it.
_PROTECTED = {"tensorflow", "keras", "numpy"}
#: Modules that are nobody's own, so that no folder deep in a repository replaces them.
_WELL_KNOWN = {
    *("absl", "cv2", "gin", "google", "gym", "h5py", "jax", "joblib", "lasagne", "librosa"),
    *("matplotlib", "mpi4py", "networkx", "nltk", "pandas", "PIL", "requests", "scipy", "six"),
    *("skimage", "sklearn", "sonnet", "spacy", "tensorboard", "tensorflow_addons"),
    *("tensorflow_datasets", "tensorflow_hub", "tensorflow_probability", "tensorlayer"),
    *("tflearn", "theano", "torch", "torchvision", "tqdm", "transformers", "yaml"),
    *_PROTECTED,
}
#: Names that people give to modules of their own, not to be confused with packages of an index.
_OWN_NAMES = {
    *("common", "config", "configs", "constants", "data", "data_loader", "data_utils", "dataset"),
    *("helper", "helpers", "layers", "lib", "libs", "main", "misc", "model", "models", "nets"),
    *("network", "networks", "ops", "settings", "src", "test", "tests", "tools", "train"),
    *("util", "utils"),
}
#: Packages that share their first name. The second name tells the distribution.
_SHARED_NAMES = {"google", "ruamel", "backports", "mpl_toolkits", "azure", "zope", "sphinxcontrib"}
#: Packages that import TensorFlow for the programs that use them.
_ABOVE_TENSORFLOW = {"keras", "sonnet", "tensorlayer", "tf_slim", "tflearn", "baselines"}
#: Modules that commands run with ``-m`` and that are no programs of a repository.
_TOOLS = {"pip", "venv", "virtualenv", "pytest", "unittest", "ensurepip", "ipykernel", "pdb"}
_NAMES = ("train", "main", "run", "demo", "example", "quickstart")
_LATE_NAMES = (
    *(
        "create",
        "download",
        "prepare",
        "preprocess",
        "convert",
        "plot",
        "visuali",
        "export",
        "util",
    ),
    *("freeze", "gen_", "dump_", "build_", "server"),
)
#: Other texts of a repository's root that have commands, and the lines of a program that may.
_GUIDES = tuple(
    f"{name}*{ending}"
    for name in ("DEVELOP*", "USAGE", "INSTALL", "GET*START*", "QUICK*START", "RUN", "TRAIN")
    for ending in (".md", ".rst", ".txt")
)
_USAGE_LINES = 80
#: A path or address of a notebook, and the part of an address before the path.
_NOTEBOOK = re.compile(
    r"(?<![^\s()\[\]<>\"'`])[^\s()\[\]<>\"'`]{1,300}\.ipynb(?=[\s()\[\]<>\"'`#?]|$)"
)
_SITE = re.compile(r"https?://[^\s]*?/(?:blob|tree|raw)/[^/]+/")
#: Limits for the characters of a README's line, and its links to notebooks.
_LONGEST_LINE, _MOST_LINKS = 4000, 50
_EXCLUDED_FILES = {"setup.py", "conftest.py", "__init__.py", "conf.py"}
_TEST_FOLDERS = {"test", "tests", "testing"}
_LATE_FOLDERS = {
    *("test", "tests", "testing", "doc", "docs", "third_party", "thirdparty", "external"),
    *("vendor", "benchmark", "benchmarks", "deprecated", "old", "legacy"),
}


@dataclass(frozen=True)
class Entry:
    """A program of a repository.

    - ``module``: its name for ``python -m``, or empty text
    - ``folder``: its working folder; empty text: the repository
    """

    path: str
    evidence: Evidence
    arguments: tuple[str, ...] = ()
    module: str = ""
    is_notebook: bool = False
    folder: str = ""


@dataclass(frozen=True)
class Closure:
    """A program with the local modules that it imports, the program first.

    - ``imports``: the first import of each top-level module that is neither local nor Python's own
    - ``roots``: folders for PYTHONPATH beside the program's own; empty text: the repository
    - ``package_name``: the name under which the repository itself is imported, if it is a package
    - ``missing``: imports of modules of the author's own that the repository does not hold
    - ``compiled``: files of Cython that have to be compiled before they can be imported
    """

    entry: Entry
    sources: tuple[SourceFacts, ...]
    imports: tuple[tuple[Import, Evidence], ...] = ()
    roots: tuple[str, ...] = ()
    package_name: str = ""
    missing: tuple[tuple[Import, Evidence], ...] = ()
    compiled: tuple[str, ...] = ()


def read_sources(repository: Repository) -> dict[str, SourceFacts]:
    """Read the facts of every Python file and notebook, in another process with limits.

    Files that cannot be read have a note, and are absent or broken.
    """
    paths = [path for path in repository.files if path.endswith(".py")]
    paths += _scripts_without_suffix(repository)
    paths += [path for path in repository.files if path.endswith(".ipynb")]
    ends = time.monotonic() + PARSE_SECONDS
    sources: dict[str, SourceFacts] = {}
    for batch in _batches(repository, paths):
        sources |= _parse_batch(repository, batch, ends)
    return sources


def _scripts_without_suffix(repository: Repository) -> Iterator[str]:
    """Yield the files near the root whose first line names Python as their interpreter."""
    paths = [path for path in repository.files if path.count("/") <= 1 and not Path(path).suffix]
    for path in paths[:_MOST_PLAIN]:
        with suppress(OSError, ValueError):
            start = read_regular_file(repository.folder, path, LARGEST_FILE)[:100]
            if re.match(rb"#![^\n]*\bpython", start):
                yield path


def _batches(repository: Repository, paths: Iterable[str]) -> Iterator[list[tuple[str, str]]]:
    batch, size = list[tuple[str, str]](), 0
    for path in paths:
        text = repository.read_text(path)
        batch.append((path, text))
        size += len(text)
        if size > _BATCH or len(batch) == _MOST_FILES:
            yield batch
            batch, size = [], 0
    yield batch


def _parse_batch(
    repository: Repository, batch: list[tuple[str, str]], ends: float
) -> dict[str, SourceFacts]:
    """Parse texts in one process, and start another one after a text that ends it."""
    sources: dict[str, SourceFacts] = {}
    while batch:
        seconds = ends - time.monotonic()
        if seconds <= 0:
            repository.note(f"{batch[0][0]} and later files: not parsed, it takes too long")
            break
        answers = _run_parser(batch, seconds)
        sources |= {facts.path: facts for facts in answers}
        batch = batch[len(answers) :]
        if batch:
            path = batch[0][0]
            repository.note(f"{path}: not parsed, it takes too long or too much memory")
            sources[path] = SourceFacts(path, broken=1, is_notebook=path.endswith(".ipynb"))
            batch = batch[1:]
    return sources


def _run_parser(batch: Sequence[tuple[str, str]], seconds: float) -> list[SourceFacts]:
    """Return the facts of the texts that the parser read before it ended."""
    folder = str(Path(__file__).parents[2])
    # The parser ends itself first, because the output of a program that `run` stops is lost.
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, folder, str(seconds)]
    text = "".join(f"{json.dumps(request)}\n" for request in batch)
    finished = run(command, text=text, timeout=seconds + 10, env={"LC_ALL": "C"})
    # A line without its end is incomplete.
    return [decode_facts(line) for line in finished.output.split("\n")[:-1]]


class _Modules:
    """The modules of a repository."""

    def __init__(self, repository: Repository, sources: Mapping[str, SourceFacts]) -> None:
        self.sources = sources
        self.files = {path for path in sources if path.endswith(".py")}
        self.folders = _folders_of(self.files)
        self.all_folders = _folders_of(repository.files)
        self.cython = {path for path in repository.files if path.endswith(".pyx")}
        self.compiled: dict[str, None] = {}
        self.name = _module_name(repository.name)
        self.inside: dict[str, list[str]] = {}
        self.named: dict[str, list[str]] = {}
        for path in sorted(sources, key=_nearness):
            folder, name = posixpath.split(path)
            self.named.setdefault(name, []).append(path)
            if path in self.files:
                self.inside.setdefault(folder, []).append(path)
        self.parents: dict[str, list[str]] = {}
        for path in sorted({*self.files, *self.folders} - {""}, key=_nearness):
            parent, name = posixpath.split(path)
            self.parents.setdefault(name.removesuffix(".py"), []).append(parent)

    def resolve(self, root: str, module: str, names: Sequence[str] = ()) -> list[str]:
        """Return the files that ``from module import names`` runs, if it is below a root.

        Folders without ``__init__.py`` are packages if one of the names is below them.
        """
        files, place = list[str](), root
        for part in module.split(".") if module else ():
            place = f"{place}/{part}" if place else part
            if f"{place}/__init__.py" in self.files:
                files.append(f"{place}/__init__.py")
            elif f"{place}.py" in self.files:
                return [*files, f"{place}.py"]
            elif place not in self.folders:
                if f"{place}.pyx" in self.cython:
                    self.compiled[f"{place}.pyx"] = None
                return files
        if place in self.folders:
            files += self._submodules(place, names)
        return files

    def _submodules(self, place: str, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            path = f"{place}/{name}" if place else name
            if name == "**":
                yield from self.inside.get(place, ())
            elif f"{path}/__init__.py" in self.files:
                yield f"{path}/__init__.py"
            elif f"{path}.py" in self.files:
                yield f"{path}.py"

    def find_program(self, module: str, root: str) -> str:
        """Return the file that ``python -m module`` runs from a root; empty if there is none."""
        path = posixpath.join(root, *module.split("."))
        files = (f"{path}.py", f"{path}/__main__.py")
        return next((file for file in files if file in self.files), "")


def _folders_of(paths: Iterable[str]) -> set[str]:
    """Return the folders that hold files, and the folders above them; the root is empty text."""
    folders = {""}
    for path in paths:
        while (path := posixpath.dirname(path)) not in folders:
            folders.add(path)
    return folders


def _nearness(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _module_name(name: str) -> str:
    """Return the module's name of a checkout, without the branch in the name of an archive."""
    return re.sub(r"-(?:master|main)$", "", name).replace("-", "_")


def find_closure(
    repository: Repository, sources: Mapping[str, SourceFacts], entry: Entry
) -> Closure:
    """Find the local modules that a program imports, and its imports of other packages."""
    return _Search(_Modules(repository, sources), entry).find()


class _Search:
    """Search for the modules of a program, the required modules first."""

    def __init__(self, modules: _Modules, entry: Entry, budget: int = _MOST_IMPORTS) -> None:
        self.modules, self.entry, self.budget = modules, entry, budget
        self.base = entry.folder if entry.module else posixpath.dirname(entry.path)
        self.appends: list[str] = []
        self.roots: list[str] = []
        self.imports: dict[str, tuple[Import, Evidence]] = {}
        self.missing: dict[str, tuple[Import, Evidence]] = {}
        self.package_name = ""
        if entry.module and not modules.find_program(entry.module, entry.folder):
            self.package_name = entry.module.split(".")[0]

    def find(self) -> Closure:
        """Visit each module once, by the strongest kind of import that leads to it."""
        waiting = {kind: deque[str]() for kind in KINDS}
        waiting["required"].append(self.entry.path)
        if self.entry.module:
            waiting["required"] += self.modules.resolve(self.base, self.entry.module)
        visited: dict[str, SourceFacts] = {}
        while kind := next((kind for kind in KINDS if waiting[kind]), None):
            path = waiting[kind].popleft()
            facts = self.modules.sources.get(path)
            if facts is None or path in visited or len(visited) >= _MOST_SOURCES:
                continue
            visited[path] = facts
            self._add_folders(facts)
            self.budget -= len(facts.imports)
            if self.budget < 0:
                break
            for imported in facts.imports:
                weaker = max(kind, imported.kind, key=KINDS.index)
                waiting[weaker] += self._follow(path, imported._replace(kind=weaker))
        return Closure(
            self.entry,
            tuple(visited.values()),
            tuple(self.imports.values()),
            tuple(self.roots),
            self.package_name,
            tuple(self.missing.values()),
            tuple(self.modules.compiled),
        )

    def _add_folders(self, facts: SourceFacts) -> None:
        """Add the folders that a module adds to ``sys.path``."""
        for folder in facts.path_appends:
            starts = (self.entry.folder, self.base, posixpath.dirname(facts.path), "")
            places = (
                [folder[1:]]
                if folder.startswith("/")
                else [posixpath.normpath(posixpath.join(start, folder)) for start in starts]
            )
            places = ["" if place == "." else place for place in places]
            place = next((place for place in places if place in self.modules.folders), None)
            if place is not None and place not in self.appends:
                self.appends.append(place)

    def _follow(self, path: str, imported: Import) -> list[str]:
        """Return the local files that an import runs, or note the import of another package."""
        if imported.level:
            return self._follow_relative(path, imported)
        top, _, rest = imported.module.partition(".")
        files = (
            self._search(self._roots_for(top), imported, path)
            or self._resolve_package(top, rest, imported.names)
            or self._search(self._distant_roots(top, path), imported, path)
        )
        if not files and top not in _STANDARD:
            self._note_import(imported, path)
        return files

    def _follow_relative(self, path: str, imported: Import) -> list[str]:
        folder = posixpath.dirname(path)
        folders = folder.split("/") if folder else []
        kept = len(folders) - imported.level + 1
        if kept < 0:
            return []
        package = "/".join(folders[:kept])
        files = self.modules.resolve(package, imported.module, imported.names)
        if not files and imported.module:
            self._note(self.missing, imported.module, imported, path)
        return files

    def _search(self, roots: Iterable[str], imported: Import, path: str) -> list[str]:
        """Return the files of an import below the first root that has it, and keep the root."""
        for root in roots:
            if files := self._resolve(root, imported, path):
                if root not in {self.base, *self.roots} and len(self.roots) < _MOST_ROOTS:
                    self.roots.append(root)
                return files
        return []

    def _roots_for(self, top: str) -> Iterator[str]:
        """Yield the folders in which Python finds a module, or would with the usual settings."""
        yield self.base
        if top not in _STANDARD:
            yield from ("", *self.appends, "src", "lib")

    def _distant_roots(self, top: str, path: str) -> Iterator[str]:
        """Yield the folders in which a module is if the author's settings were unusual."""
        if top in _STANDARD or top in _WELL_KNOWN:
            return
        folder = posixpath.dirname(path)
        while folder:
            yield folder
            folder = posixpath.dirname(folder)
        yield from self.modules.parents.get(top, ())[:_MOST_PLACES]

    def _resolve(self, root: str, imported: Import, path: str) -> list[str]:
        top = imported.module.partition(".")[0]
        place = f"{root}/{top}" if root else top
        is_regular = {f"{place}.py", f"{place}/__init__.py"} & self.modules.files
        if top in _WELL_KNOWN and not is_regular:
            return []  # a folder that is no package does not hide an installed one
        if root != self.base and (top in _PROTECTED or f"{place}.py" == path):
            return []
        return self.modules.resolve(root, imported.module, imported.names)

    def _resolve_package(self, top: str, rest: str, names: Sequence[str]) -> list[str]:
        """Return the files of an import of the repository itself, as a package."""
        root_files = ["__init__.py"] if "__init__.py" in self.modules.files else []
        is_named = top in {self.package_name, self.modules.name}
        if not is_named and (self.package_name or not root_files or top in _WELL_KNOWN):
            return []
        files = self.modules.resolve("", rest, names) if rest or names else []
        if not files and not (is_named and root_files):
            return []
        self.package_name = self.package_name or top
        return root_files + files

    def _note_import(self, imported: Import, path: str) -> None:
        """Note an import that no file of the repository answers."""
        top, _, rest = imported.module.partition(".")
        if top.startswith("_") or top.endswith("_pb2") or top in _OWN_NAMES:
            self._note(self.missing, top, imported, path)
        elif top in _SHARED_NAMES:
            second = rest.partition(".")[0] or next(iter(imported.names), "")
            name = f"{top}.{second}".rstrip(".")
            self._note(
                self.imports, name, imported if rest else imported._replace(module=name), path
            )
        else:
            self._note(self.imports, top, imported, path)

    @staticmethod
    def _note(
        noted: dict[str, tuple[Import, Evidence]], name: str, imported: Import, path: str
    ) -> None:
        """Keep the strongest import of a name, and the first of these."""
        known = noted.get(name)
        if known is None or KINDS.index(imported.kind) < KINDS.index(known[0].kind):
            noted[name] = imported, Evidence(path, imported.line)


def find_entries(repository: Repository, sources: Mapping[str, SourceFacts]) -> tuple[Entry, ...]:
    """Find the programs of a repository, the likeliest first.

    READMEs come first, then shell scripts, then files that are programs, then notebooks. Programs
    that import TensorFlow or Keras come before others.
    """
    modules = _Modules(repository, sources)
    ends = time.monotonic() + _COMPARE_SECONDS
    listed = _distinct_entries(_all_entries(repository, modules))
    ranks: dict[str, bool] = {}
    # Compare the programs that texts name first.
    for entry in sorted(listed, key=_names_itself)[:_MOST_COMPARED]:
        if time.monotonic() < ends:
            ranks[entry.path] = not _uses_tensorflow(
                _Search(modules, entry, _MOST_COMPARED_IMPORTS).find()
            )
    has_notebooks_first = _has_notebooks_first(listed, ranks)
    listed.sort(
        key=lambda entry: (
            _names_itself(entry) and _is_test(entry.path),
            entry.is_notebook != has_notebooks_first,
            ranks.get(entry.path, True),
            _is_late(entry.path),
        )
    )
    return tuple(listed)


def _has_notebooks_first(entries: Sequence[Entry], ranks: Mapping[str, bool]) -> bool:
    """Return whether READMEs name notebooks but no program, so that programs are their helpers."""
    programs = [entry for entry in entries if not entry.is_notebook]
    notebooks = [entry for entry in entries if entry.is_notebook]
    named = [entry for entry in programs if not _names_itself(entry)]
    if any(not ranks.get(entry.path, True) for entry in named) or len(notebooks) < len(programs):
        return False
    return not all(map(_names_itself, notebooks))


def _names_itself(entry: Entry) -> bool:
    """Return whether no other text names a program."""
    return entry.path == entry.evidence.path


def _distinct_entries(entries: Iterable[tuple[Entry, bool]]) -> list[Entry]:
    """Return an entry for each program: its first command without gaps, or else its first."""
    chosen: dict[str, Entry] = {}
    incomplete: set[str] = set()
    for entry, has_gaps in entries:
        if entry.path not in chosen:
            chosen[entry.path] = entry
            incomplete |= {entry.path} if has_gaps else set()
        elif entry.path in incomplete and not has_gaps:
            chosen[entry.path] = entry
            incomplete.remove(entry.path)
        if len(chosen) >= _MOST_ENTRIES:
            break
    return list(chosen.values())


def _uses_tensorflow(closure: Closure) -> bool:
    names = {imported.module.split(".")[0] for imported, _ in closure.imports}
    return any(name.startswith("tensorflow") or name in _ABOVE_TENSORFLOW for name in names)


def _all_entries(repository: Repository, modules: _Modules) -> Iterator[tuple[Entry, bool]]:
    """Yield entries, and whether their commands have gaps."""
    readmes = [path for path in repository.match("readme*") if path.count("/") <= 2]
    guides = [path for path in repository.match(*_GUIDES) if "/" not in path]
    yield from _entries_of_texts(repository, modules, [*readmes, *guides][:_MOST_TEXTS])
    scripts = sorted(repository.match("*.sh"), key=_program_rank)
    yield from _entries_of_texts(repository, modules, scripts[:_MOST_TEXTS])
    programs = [facts for facts in modules.sources.values() if _is_candidate(facts)]
    programs = programs or _find_lone_file(modules.sources)
    chosen = [facts for facts in programs if facts.program_line]
    for facts in sorted(chosen or programs, key=lambda facts: _program_rank(facts.path)):
        entry = _read_usage(repository, modules, facts.path) or _program_entry(modules, facts)
        yield entry, True
    yield from ((entry, True) for entry in _named_notebooks(repository, modules, readmes))
    for path in sorted(
        (path for path in modules.sources if path.endswith(".ipynb")), key=_nearness
    ):
        folder = posixpath.dirname(path)
        yield Entry(path, Evidence(path), is_notebook=True, folder=folder), True


def _read_usage(repository: Repository, modules: _Modules, path: str) -> Entry | None:
    """Return the entry of a command at the head of a program that starts this program."""
    head = "".join(repository.read_text(path).splitlines(keepends=True)[:_USAGE_LINES])
    entries = [
        (entry, has_gaps)
        for entry, has_gaps in _entries_of_text(modules, path, head)
        if entry.path == path
    ]
    return min(entries, key=lambda pair: pair[1])[0] if entries else None


def _named_notebooks(
    repository: Repository, modules: _Modules, readmes: Iterable[str]
) -> Iterator[Entry]:
    """Yield the notebooks that READMEs link, in their order."""
    for readme in [*readmes][:_MOST_TEXTS]:
        here = posixpath.dirname(readme)
        for number, line in enumerate(repository.read_text(readme).splitlines(), 1):
            for match in islice(_NOTEBOOK.finditer(line[:_LONGEST_LINE]), _MOST_LINKS):
                program = unquote(_SITE.sub("", match[0], count=1))
                if place := _find_file(modules, program, (here, "")):
                    folder = posixpath.dirname(place[0])
                    evidence = Evidence(readme, number)
                    yield Entry(place[0], evidence, is_notebook=True, folder=folder)


def _find_lone_file(sources: Mapping[str, SourceFacts]) -> list[SourceFacts]:
    """Return the only file that imports TensorFlow or Keras; none if there is a notebook."""
    if any(facts.is_notebook for facts in sources.values()):
        return []
    users = [
        facts
        for facts in sources.values()
        if posixpath.basename(facts.path) not in _EXCLUDED_FILES
        and any(each.module.split(".")[0] in {"tensorflow", "keras"} for each in facts.imports)
    ]
    return users if len(users) == 1 else []


def _is_candidate(facts: SourceFacts) -> bool:
    name = posixpath.basename(facts.path)
    works = facts.program_line or facts.is_script or not name.endswith(".py")
    return bool(works) and not facts.is_notebook and name not in _EXCLUDED_FILES


def _program_entry(modules: _Modules, facts: SourceFacts) -> Entry:
    """Return the entry of a program; if it has relative imports, ``python -m`` starts it."""
    evidence = Evidence(facts.path, facts.program_line)
    folder, name = posixpath.split(facts.path)
    is_module = any(each.level and each.kind == "required" for each in facts.imports)
    if not folder or not (is_module or name == "__main__.py"):
        return Entry(facts.path, evidence, folder=folder)
    if name == "__main__.py":
        parts, folder = [posixpath.basename(folder)], posixpath.dirname(folder)
    else:
        parts = [name.removesuffix(".py")]
    levels = 1 if is_module else 0
    while folder and (f"{folder}/__init__.py" in modules.files or len(parts) <= levels):
        folder, part = posixpath.split(folder)
        parts.insert(0, part)
    return Entry(facts.path, evidence, module=".".join(parts), folder=folder)


def _program_rank(path: str) -> tuple[bool, bool, int, int, str]:
    """Return the order of programs: by name, then nearness to the root."""
    *folders, name = path.lower().split("/")
    stem = name.rpartition(".")[0]
    is_aside = _is_test(path) or bool(_LATE_FOLDERS.intersection(folders))
    ranks = [number for number, word in enumerate(_NAMES) if word in stem]
    rank = ranks[0] * 2 + (stem != _NAMES[ranks[0]]) if ranks else 2 * len(_NAMES)
    is_named = bool(ranks) and not _is_late(path)
    return is_aside, not is_named, len(folders), rank, path


def _is_test(path: str) -> bool:
    """Tell whether a program tests others, by its name and its folders."""
    *folders, name = path.lower().split("/")
    stem = name.rpartition(".")[0]
    is_test = stem.startswith("test_") or stem.endswith(("_test", "_tests"))
    return is_test or not _TEST_FOLDERS.isdisjoint(folders)


def _is_late(path: str) -> bool:
    """Tell whether a program prepares data or shows results, by its name."""
    name = posixpath.basename(path).lower()
    return any(word in name for word in _LATE_NAMES)


def _entries_of_texts(
    repository: Repository, modules: _Modules, paths: Iterable[str]
) -> Iterator[tuple[Entry, bool]]:
    """Yield the entries of the commands that name a program, and whether they have gaps."""
    for path in paths:
        yield from _entries_of_text(modules, path, repository.read_text(path))


def _entries_of_text(modules: _Modules, path: str, text: str) -> Iterator[tuple[Entry, bool]]:
    here = posixpath.dirname(path)
    for line, folder, words in read_commands(text, modules.all_folders, here):
        program, module, arguments, has_gaps = split_words(words)
        starts = tuple(dict.fromkeys((folder, here, "", "src")))
        place = _find_module(modules, module, starts) if module else None
        place = _find_file(modules, program, starts[:-1]) if program else place
        if place and posixpath.basename(place[0]) not in _EXCLUDED_FILES:
            target, start = place
            facts = modules.sources[target]
            if words[0].startswith("./") and not _is_candidate(facts):
                continue  # a list of files
            is_notebook = target.endswith(".ipynb")
            evidence = Evidence(path, line)
            yield Entry(target, evidence, arguments, module, is_notebook, start), has_gaps


def _find_file(modules: _Modules, program: str, starts: Sequence[str]) -> tuple[str, str] | None:
    """Return the file that a command names, and its working folder."""
    for start in starts:
        path = posixpath.normpath(posixpath.join(start, program))
        if path in modules.sources:
            return path, start
    plain = posixpath.normpath(program).lstrip("./")
    is_file = plain.endswith((".py", ".ipynb"))
    paths = modules.named.get(posixpath.basename(plain), ()) if is_file else ()
    path = next((path for path in paths if path.endswith(f"/{plain}")), "")
    return (path, path.removesuffix(f"/{plain}")) if path else None


def _find_module(modules: _Modules, module: str, starts: Sequence[str]) -> tuple[str, str] | None:
    """Return the file of a command with ``-m``, and its working folder."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts) or parts[0] in _TOOLS | _STANDARD:
        return None
    for start in starts:
        if path := modules.find_program(module, start):
            return path, start
    # The repository itself is the package.
    path = modules.find_program(".".join(parts[1:]), "") if len(parts) > 1 else ""
    return (path, "") if path and parts[0] not in _WELL_KNOWN else None
