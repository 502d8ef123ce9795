"""Decide on the image, the packages and the program of a repository."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pydantic import ValidationError

from imgbuild.adopt.adoption import FILE, OWN_TAGS, Adoption, adoption_text, read_result
from imgbuild.adopt.choice import (
    Decision,
    choose_image,
    refuse_unsupported,
)
from imgbuild.adopt.closure import Closure, Entry, find_closure, find_entries, read_sources
from imgbuild.adopt.history import read_history
from imgbuild.adopt.packages import LEFT, PackageRequest, drop_versions, request_packages
from imgbuild.adopt.prose import find_source_lines, names_package
from imgbuild.adopt.repository import Evidence, Repository
from imgbuild.adopt.statements import (
    find_declarations,
    read_named_packages,
    read_requested,
    read_stated_python,
    read_statements,
)
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.scalars import refusal_reason
from imgbuild.core.text import slug
from imgbuild.core.yaml_file import LARGEST
from imgbuild.extend.base_image import BaseImage, family_base
from imgbuild.matrix.evidence import Architecture
from imgbuild.matrix.images import (
    Image,
    all_images,
    for_amd64,
    for_other_architecture,
    with_other_architectures,
)
from imgbuild.matrix.model import Matrix

#: Programs that are listed if there is none by that name.
_NAMED = 12
#: Other programs that the decision about the program names.
_OTHERS = 3
#: Limits: READMEs that are searched for packages, packages that are looked for, and characters of
#: a README that a note shows.
_MOST_READMES, _MOST_ABSENT, _LONGEST_WORDS = 4, 50, 160
#: Characters of a folder's name in the tag.
_LONGEST_NAME = 100
#: The packages with which notebooks are opened.
_JUPYTER = ("jupyterlab", "ipykernel")


@dataclass(frozen=True)
class AdoptOptions:
    """The user's choices, which override the repository, and the limits of the trial.

    - ``tag``: if it is given, it may replace any image
    - ``seconds``: how long the program may run after its imports
    - ``network``: whether the program may use the network
    - ``jobs``: number of suites that run in parallel
    - ``architecture``: that of the image
    """

    tensorflow: str | None = None
    gpu: bool = False
    entry: str | None = None
    day: date | None = None
    tag: str | None = None
    seconds: float = 20.0
    network: bool = False
    jobs: int = 2
    architecture: Architecture = "amd64"

    @property
    def changes_decisions(self) -> bool:
        """Whether an option replaces saved decisions."""
        return bool(self.tensorflow or self.gpu or self.entry or self.day)


@dataclass(frozen=True)
class DecidedProgram:
    """A program of a repository, its image and its packages, with the reasons.

    - ``modules``: the distribution of each imported module
    - ``is_recalled``: the decisions were saved, so there are no reasons
    """

    repository: Repository
    closure: Closure
    base: BaseImage
    adoption: Adoption
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    is_recalled: bool = False

    @property
    def request(self) -> PackageRequest:
        """The packages of the decisions."""
        return PackageRequest(
            requirements=self.adoption.pip,
            optional=self.adoption.optional,
            constraints=self.adoption.constraints,
            overrides=self.adoption.overrides,
            wheels_only=self.adoption.wheels_only,
        )

    @property
    def image(self) -> Image:
        if not self.base.image:
            raise ValueError(f"{self.base.name} is not in the matrix")
        return self.base.image


def decide(
    repository: Repository, project: Project, matrix: Matrix, options: AdoptOptions, today: date
) -> DecidedProgram:
    """Decide on everything from the files of a repository.

    InputError: no image fits, the repository has no program, or an option names a program that it
        does not have.
    """
    sources = read_sources(repository)
    entries = find_entries(repository, sources)
    entry = entries[0] if entries else None
    if options.entry is not None:
        entry = _find_entry(entries, options.entry, repository)
    closure = find_closure(repository, sources, entry) if entry else None
    refuse_unsupported(repository, closure, sources)
    if entry is None or closure is None:
        raise InputError(
            f"{repository.name} has no program: no Python file starts by itself (`if __name__ == "
            '"__main__"`), and README names none. Name one: imgbuild adopt --entry FILE.',
            "no-program",
        )
    history = read_history(repository.folder, tuple(find_declarations(repository)))
    statements = read_statements(repository, history, entry, closure.sources)
    image, choices = choose_image(
        closure,
        sources,
        statements,
        history,
        matrix,
        tensorflow=options.tensorflow,
        gpu=options.gpu,
        architecture=options.architecture,
        date=options.day,
        today=today,
        python=read_stated_python(repository),
    )
    base = family_base(image, project)
    requested, notes = read_requested(repository, history, entry, closure.sources)
    named = read_named_packages(repository, sources.values())
    request = request_packages(requested, closure, base, named)
    if entry.is_notebook:
        tools = [name for name in _JUPYTER if name not in map(drop_versions, request.requirements)]
        request = replace(request, requirements=(*request.requirements, *tools))
    day = choices[-1].value or None
    adoption = _make_adoption(repository, closure, image, day, request, options)
    decisions = (*choices, _explain_entry(entry, entries), *request.decisions)
    return DecidedProgram(
        repository,
        closure,
        base,
        adoption,
        decisions,
        (
            *repository.notes,
            *filter(None, [history.note]),
            *notes,
            *_describe_missing(repository, closure),
            *_describe_sources(repository, closure, request),
        ),
        request.modules,
    )


def recall(
    repository: Repository,
    project: Project,
    matrix: Matrix,
    saved: Adoption,
    options: AdoptOptions,
) -> DecidedProgram:
    """Return the decisions that were saved, and perhaps edited by a person.

    The file names the image for amd64, of which the one for the architecture of ``options`` is
    taken.

    InputError: the image or the program that they name does not exist, or a stranger may have
        chosen the tag.
    """
    tag = options.tag
    _check_tag(repository, saved.tag, tag)
    known = with_other_architectures(all_images(matrix))
    named = next((image for image in known if image.name == saved.image), None)
    if not named:
        raise InputError(
            f"{FILE} names the image {saved.image!r}, which is not in the matrix. "
            "Correct it, or decide anew with --refresh."
        )
    image: Image | None = named
    if named.architecture != options.architecture:
        image = for_other_architecture(named)
    if not image:
        raise InputError(
            f"{FILE} names the image {saved.image}, which is only for {named.platform}. Use "
            f"--platform {named.platform} or another machine, or decide anew with --refresh."
        )
    sources = read_sources(repository)
    entry = _find_entry(find_entries(repository, sources), saved.entry, repository)
    entry = replace(entry, arguments=saved.arguments, module=saved.module or "")
    closure = replace(find_closure(repository, sources, entry), roots=saved.python_path)
    adoption = saved.model_copy(update={"tag": tag}) if tag else saved
    base = family_base(image, project)
    return DecidedProgram(repository, closure, base, adoption, is_recalled=True)


def _check_tag(repository: Repository, saved: str, tag: str | None) -> None:
    """Raise InputError for a tag of another kind that nobody has chosen on this machine.

    The file may have come with the repository, and its tag must not replace an image of the user.
    """
    if tag or saved.startswith(OWN_TAGS) or read_result(repository.folder).get("tag") == saved:
        return
    raise InputError(
        f"{FILE} names the image {saved}, and nobody has chosen this name on this machine. If you "
        f"want it, use --tag {saved}; otherwise choose another one, for example "
        f"--tag {default_tag(repository.name)}."
    )


def _find_entry(entries: Sequence[Entry], wanted: str, repository: Repository) -> Entry:
    """Return the program that the user names; InputError: the repository has no such file."""
    wanted = wanted.removeprefix("./")
    for entry in entries:
        if entry.path == wanted:
            return entry
    if wanted not in repository.files or not wanted.endswith((".py", ".ipynb")):
        names = list(dict.fromkeys(entry.path for entry in entries))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        listed = f" Programs: {', '.join(names[:_NAMED])}{more}." if names else ""
        raise InputError(
            f"--entry {wanted}: the repository has no such Python file or notebook.{listed}"
        )
    return Entry(wanted, Evidence(wanted), is_notebook=wanted.endswith(".ipynb"))


def _describe_missing(repository: Repository, closure: Closure) -> list[str]:
    """Return notes about modules of the repository that cannot be imported as they are."""
    notes = [
        f"{place} imports {imported.module}, which is not in the repository"
        for imported, place in closure.missing
        if imported.kind == "required"
    ]
    if submodules := repository.empty_submodules():
        named = ", ".join(submodules[:_OTHERS])
        notes.append(f"{named}: get the git submodules first (`git submodule update --init`)")
    if closure.compiled:
        names = ", ".join(closure.compiled[:_OTHERS])
        notes.append(
            f"the program imports {names}: compile it before the program starts, because adopt "
            "does not compile a repository's code"
        )
    return notes[:_NAMED]


def _describe_sources(
    repository: Repository, closure: Closure, request: PackageRequest
) -> list[str]:
    """Return notes with README's lines about imports that no package of the index provides."""
    imports = {place for _, place in closure.imports}
    absent = [
        decision.subject
        for decision in request.decisions
        if decision.value == LEFT and imports.intersection(decision.evidence)
    ]
    if not absent:
        return []
    readmes = [
        path for path in repository.files if "/" not in path and path.lower().startswith("readme")
    ]
    lines = [
        (Evidence(path, number), words)
        for path in readmes[:_MOST_READMES]
        for number, words in find_source_lines(repository.read_text(path))
    ]
    notes = []
    for name in absent[:_MOST_ABSENT]:
        named = [(place, words) for place, words in lines if names_package(words, name)]
        notes += [f"{place} about {name}: {words[:_LONGEST_WORDS]}" for place, words in named[:1]]
    return notes[:_NAMED]


def _explain_entry(entry: Entry, entries: Sequence[Entry]) -> Decision:
    paths = dict.fromkeys(other.path for other in entries)
    others = [path for path in paths if path != entry.path]
    reason = f"{entry.evidence} starts it"
    if entry.evidence.path == entry.path and entry.arguments:
        reason = f"{entry.evidence} says how to start it"
    elif entry.evidence.path == entry.path:
        reason = "no README starts a program, and this one is the likeliest by its name"
    elif entry.is_notebook:
        reason = f"{entry.evidence} names it"
    if others:
        more = f" and {len(others) - _OTHERS} more" if len(others) > _OTHERS else ""
        reason += f"; --entry chooses another one: {', '.join(others[:_OTHERS])}{more}"
    return Decision("entry", entry.path, reason, (entry.evidence,))


def _make_adoption(  # noqa: PLR0913, PLR0917 - all that is decided
    repository: Repository,
    closure: Closure,
    image: Image,
    day: str | None,
    request: PackageRequest,
    options: AdoptOptions,
) -> Adoption:
    """Return the decisions; InputError: a name in the repository cannot be one of them."""
    entry = closure.entry
    try:
        adoption = Adoption(
            tag=options.tag or default_tag(repository.name),
            image=for_amd64(image).name,  # so that the file is good on every machine
            entry=entry.path,
            module=entry.module or None,
            arguments=entry.arguments,
            python_path=closure.roots,
            date=day,
            pip=request.requirements,
            optional=request.optional,
            constraints=request.constraints,
            overrides=request.overrides,
            apt=request.apt,
            build_apt=request.build_apt,
        )
    except ValidationError as error:
        raise InputError(
            f"{repository.name}: {refusal_reason(error)}. Rename it, or choose another program "
            "with --entry."
        ) from None
    if len(adoption_text(adoption, ()).encode()) > LARGEST // 2:
        raise InputError(
            f"{repository.name}: its {len(adoption.pip)} packages are more than {FILE} can name. "
            "Remove some from the requirement files, or choose another program with --entry."
        )
    return adoption


def default_tag(folder: str) -> str:
    """Return the tag of a repository's image: ``adopted/FOLDER:1``."""
    name = slug(folder, "program")[:_LONGEST_NAME].rstrip("-")
    return f"{OWN_TAGS}{name}:1"
