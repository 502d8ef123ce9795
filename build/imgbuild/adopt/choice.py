"""Choose TensorFlow, the image and the date of the packages for somebody's program."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import NamedTuple

from packaging.markers import Marker, UndefinedEnvironmentName
from packaging.specifiers import SpecifierSet

from imgbuild.adopt.closure import Closure
from imgbuild.adopt.family import FIRST_ALPHA, RELEASE_DAYS, Family, find_family, find_signs
from imgbuild.adopt.history import History
from imgbuild.adopt.repository import Evidence, Repository
from imgbuild.adopt.source_facts import SourceFacts
from imgbuild.adopt.statements import Statement
from imgbuild.adopt.tensorflow_names import REMOVED_NAMES
from imgbuild.core.errors import InputError
from imgbuild.core.text import count_text, printable, without_logins
from imgbuild.engine.types import AMD64, ARM64
from imgbuild.extend.requirement_files import marker_environment
from imgbuild.matrix.evidence import Architecture
from imgbuild.matrix.gpus import NO_CUDA_ON_ARM
from imgbuild.matrix.images import Image, all_images, for_other_architecture
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import default_image

#: The minors for code without a date. Later ones changed the optimizers (2.11) and Keras (2.16).
_UNDATED = {"1": "1.15", "2": "2.10"}
#: TensorFlow's first public day; commits before it have a wrong clock.
_FIRST_DAY = date(2015, 11, 9)
#: The weight of statements: a check that stops the program wins over a declaration, which wins
#: over a Dockerfile, which wins over prose.
_WEIGHTS = {"check": -1, "Dockerfile": 1, "README": 2, "CI": 2, "script": 2, "code": 3}
#: The time in which code is adapted to a release that is not out yet. A pin on a later release was
#: moved after the code was written.
_LONGEST_DELAY = timedelta(days=90)
#: The weight of a statement that a version of Keras implies.
_IMPLIED = 4
#: Modules that need TensorFlow, beside those whose name begins with it.
_TENSORFLOW_MODULES = {
    "baselines", "edward", "gpflow", "keras", "object_detection", "slim", "sonnet",
    "stable_baselines", "t2t", "tensor2tensor", "tensorforce", "tensorpack",
    "tf_agents", "tf_slim", "tflearn", "tfplot",
}  # fmt: skip
_TENSORFLOW_IMPORT = re.compile(
    r"^[ \t]{0,40}(?:import|from)[ \t]{1,9}(?:tensorflow|keras)\b", re.MULTILINE
)
#: Other frameworks, by the module that is imported.
_FRAMEWORKS = {
    "torch": "PyTorch",
    "pytorch_lightning": "PyTorch",
    "theano": "Theano",
    "lasagne": "Theano",
    "caffe": "Caffe",
    "mxnet": "MXNet",
    "chainer": "Chainer",
    "paddle": "PaddlePaddle",
    "jax": "JAX",
    "cntk": "CNTK",
    "dynet": "DyNet",
    "sklearn": "scikit-learn",
}
_NOT_FOLLOWED = ": not followed, because"
#: Limit for the notes about a decision.
_MOST_NOTES = 8
#: The calls since 1.0, by their names in 0.x.
_NEW_NAMES = {
    **REMOVED_NAMES,
    "concat": "concat(values, axis)",
    "split": "split(value, number, axis)",
}
#: Calls that TensorFlow 1.0 removed, from which on a program is refused.
_FEWEST_REMOVED = 3


class Decision(NamedTuple):
    """A decision, its reason and its evidence, and the facts that speak against it."""

    subject: str
    value: str
    reason: str
    evidence: tuple[Evidence, ...] = ()
    against: tuple[str, ...] = ()


def refuse_unsupported(
    repository: Repository, closure: Closure | None, sources: Mapping[str, SourceFacts]
) -> None:
    """Raise `InputError` for Python 2, TensorFlow 0.x, and code without TensorFlow."""
    old = [source for source in sources.values() if source.python2 is not None]
    uses = [source for source in sources.values() if _uses_tensorflow(source)]
    if not uses and not any(_names_tensorflow(repository, source) for source in old):
        _refuse_other_framework(repository, sources)
    _refuse_python2(repository, closure, old, len(sources))
    _refuse_other_program(closure, uses)
    _refuse_theano(closure.sources if closure else tuple(sources.values()))
    _refuse_tensorflow0(closure.sources if closure else tuple(sources.values()))


def _names_tensorflow(repository: Repository, source: SourceFacts) -> bool:
    """Return whether a file that does not parse imports TensorFlow, for all that its text tells."""
    return bool(_TENSORFLOW_IMPORT.search(repository.read_text(source.path)))


def _refuse_python2(
    repository: Repository, closure: Closure | None, old: Sequence[SourceFacts], count: int
) -> None:
    own = [source for source in (closure.sources if closure else ()) if source.python2 is not None]
    if not own and (not old or 5 * len(old) < count):
        return
    first = (own or old)[0]
    place = Evidence(first.path, first.python2 or 0)
    line = "" if first.is_notebook else _read_line(repository, place)
    verb = "does" if count == 1 else "do"
    raise InputError(
        f"This is Python 2: {max(len(old), 1)} of {count_text(count, 'file')} {verb} not parse in "
        f"Python 3, first {place}{line}. No image has Python 2, and TensorFlow for it ended with "
        "2.1. Convert the code first (`2to3 -w .`), then run adopt again. Nothing was built.",
        "python2",
    )


def _read_line(repository: Repository, place: Evidence) -> str:
    lines = repository.read_text(place.path).splitlines()
    if not 0 < place.line <= len(lines):
        return ""
    return f"  {lines[place.line - 1].strip()[:80]}"


def _refuse_other_framework(repository: Repository, sources: Mapping[str, SourceFacts]) -> None:
    what = "No Python file or notebook was found"
    if sources:
        what = f"None of the {count_text(len(sources), 'Python file')} imports tensorflow or keras"
    named = [f"{name} ({place})" for name, place in _find_frameworks(sources.values()).items()]
    instead = f"; instead, it uses {' and '.join(named[:2])}" if named else ""
    raise InputError(
        f"{repository.name} has no TensorFlow program: {what}{instead}. The images of this project "
        "have TensorFlow. If the program is in another folder, name that folder: "
        "`imgbuild adopt DIR`. Nothing was built.",
        "no-tensorflow",
    )


def _find_frameworks(sources: Iterable[SourceFacts]) -> dict[str, Evidence]:
    """Return the other frameworks that files import, with the first place of each."""
    places: dict[str, Evidence] = {}
    for source in sources:
        for imported in source.imports:
            framework = _FRAMEWORKS.get(imported.module.partition(".")[0])
            if framework and imported.level == 0:
                places.setdefault(framework, Evidence(source.path, imported.line))
    return places


def _refuse_other_program(closure: Closure | None, uses: Sequence[SourceFacts]) -> None:
    """Refuse a program of another framework in a repository that has TensorFlow elsewhere."""
    if not closure or any(map(_uses_tensorflow, closure.sources)):
        return
    for name, place in _find_frameworks(closure.sources).items():
        if name != "scikit-learn":
            raise InputError(
                f"{closure.entry.path} uses {name} ({place}), not TensorFlow. TensorFlow is used "
                f"by {uses[0].path}: if you mean that program, name it with --entry. Nothing was "
                "built.",
                "no-tensorflow",
            )


def _refuse_theano(sources: Sequence[SourceFacts]) -> None:
    """Refuse code for Keras that calls Theano itself, and never TensorFlow."""
    places = list[Evidence]()
    for source in sources:
        for imported in source.imports:
            is_theano = imported.module.partition(".")[0] == "theano"
            if is_theano and imported.level == 0 and imported.kind == "required":
                places.append(Evidence(source.path, imported.line))
    if places and not find_signs(sources, ("tensorflow",)):
        raise InputError(
            f"This is Theano: {places[0]} imports it, and no file of the program imports "
            "tensorflow. The images of this project have TensorFlow. Nothing was built.",
            "no-tensorflow",
        )


def _uses_tensorflow(source: SourceFacts) -> bool:
    if any(source.tensorflow.values()):
        return True
    for imported in source.imports:
        name = imported.module.partition(".")[0]
        is_family = name.startswith(("tensorflow", "tensorlayer")) or name in _TENSORFLOW_MODULES
        if imported.level == 0 and is_family:
            return True
    return False


def _refuse_tensorflow0(sources: Sequence[SourceFacts]) -> None:
    """Refuse code with several calls that 1.0 removed, unless more of its calls came with 1.0.

    One old name in code that has the new spellings is in lines that its author did not run.
    """
    plain = [source for source in sources if not source.tensorflow.get("guards0")]
    places = find_signs(plain, ("removed0",))
    names = set[str]()
    for source in plain:
        names.update(source.removed_names)
    is_leftover = len(names) == 1 and names <= REMOVED_NAMES.keys()
    if is_leftover and find_signs(sources, ("since1", "since0.12")):
        return
    if len(places) < max(_FEWEST_REMOVED, len(find_signs(sources, ("since1",)))):
        return
    shown = ", ".join(map(str, places[:3]))
    renamed = [f"tf.{name} is tf.{_NEW_NAMES.get(name, name)} now" for name in sorted(names)]
    raise InputError(
        f"This is TensorFlow 0.x: {len(places)} calls do not work since 1.0, first {shown}. The "
        f"oldest image has 1.10. Change the calls first ({'; '.join(renamed[:3])}), then run adopt "
        "again. Nothing was built.",
        "tensorflow0",
    )


@dataclass(frozen=True)
class _Facts:
    """The facts that decide: images by minor, the family, statements of people, and the day."""

    images: Mapping[str, Image]
    family: Family
    statements: tuple[Statement, ...]
    day: date | None
    minimum_python: str
    maximum_python: str


def choose_image(  # noqa: PLR0913 - the facts of the repository, and the user's options
    closure: Closure | None,
    sources: Mapping[str, SourceFacts],
    statements: Sequence[Statement],
    history: History,
    matrix: Matrix,
    *,
    tensorflow: str | None = None,
    gpu: bool = False,
    architecture: Architecture = "amd64",
    date: date | None = None,
    today: date,
    python: tuple[Evidence, str] | None = None,
) -> tuple[Image, tuple[Decision, Decision, Decision]]:
    """Return the image for a program, and the decisions about TensorFlow, Python and the date.

    The value of the last one is the day as of which packages are resolved, or empty.

    ``tensorflow`` and ``date`` are the user's, and replace what the repository says. ``python`` is
    the Python that the repository asks for, which is compared with the image's. The image is for
    ``architecture``.

    InputError: no image has the TensorFlow that the user names, or the code's major version.
    """
    images = _images_by_minor(matrix, "gpu" if gpu else "cpu")
    day, dated = _choose_date(history, date, today)
    code = _select_sources(closure, sources)
    oldest = max((source.minimum_python for source in code), key=_numbers, default="3.0")
    newest = min((source.maximum_python or "3.99" for source in code), key=_numbers, default="3.99")
    family = find_family(code, day)
    if tensorflow and "." not in tensorflow:
        family = _obey_major(tensorflow, images)
    facts = _Facts(images, family, tuple(statements), day, oldest, newest)
    named = tensorflow if tensorflow and "." in tensorflow else None
    decision = _obey_minor(named, facts, gpu=gpu) if named else _decide(facts)
    image = images[decision.value]
    if architecture != "amd64":
        image, decision = _take_arm64(decision, facts, is_asked=named is not None)
    return image, (decision, _describe_python(image, code, python), dated)


def _images_by_minor(matrix: Matrix, variant: str) -> dict[str, Image]:
    """Return the default image of each minor version, in the order of versions."""
    by_minor: dict[str, list[Image]] = {}
    for image in all_images(matrix):
        if image.variant == variant:
            by_minor.setdefault(image.minor, []).append(image)
    if not by_minor:
        raise InputError(f"The matrix has no {variant} image.", "no-image")
    return {minor: default_image(by_minor[minor]) for minor in sorted(by_minor, key=_numbers)}


def _take_arm64(decision: Decision, facts: _Facts, *, is_asked: bool) -> tuple[Image, Decision]:
    """Return the image for arm64 that is nearest to a decision, and the decision about it.

    No other version will do if ``is_asked``, that is, if the user names it.

    InputError: no image for arm64 has the version or its major version, or it is a GPU image.
    """
    own: dict[str, Image] = {}
    for minor, image in facts.images.items():
        if other := for_other_architecture(image):
            own[minor] = other
    if not own:
        raise InputError(
            f"--gpu: {NO_CUDA_ON_ARM}, so no image for {ARM64} uses a GPU. Leave out --gpu, or use "
            "an x86-64 machine. Nothing was built.",
            "no-image",
        )
    wanted = decision.value
    if wanted in own:
        return own[wanted], decision
    if is_asked or _major(wanted) not in map(_major, own):
        raise InputError(
            f"No image for {ARM64} has TensorFlow {wanted} ({decision.reason}), because it has no "
            f"wheel for ARM. Use an x86-64 machine, or --platform {AMD64} if the engine emulates "
            f"AVX. The images for {ARM64} have TensorFlow {', '.join(own)}. Nothing was built.",
            "no-image",
        )
    nearest = _nearest_minor(wanted, replace(facts, images=own))
    reason = f"{decision.reason}, and {nearest} is the nearest image for {ARM64}"
    return own[nearest], decision._replace(value=nearest, reason=reason)


def _choose_date(history: History, asked: date | None, today: date) -> tuple[date | None, Decision]:
    """Return the day as of which packages are resolved, and the decision."""
    day = history.code_date
    if asked:
        against = (f"the last change of code is of {day}",) if day and day != asked else ()
        return asked, Decision("date", asked.isoformat(), "--date", (), against)
    if day and day > today:
        reason = f"the last change of code is of {day}, which is in the future"
        return today, Decision("date", today.isoformat(), reason)
    if day and day < _FIRST_DAY:
        reason = f"the history says {day}, which is before TensorFlow existed"
        return None, Decision("date", "", reason)
    if day:
        reason = "last change of a Python file or notebook"
        notes = (history.note,) if history.note else ()
        return day, Decision("date", day.isoformat(), reason, (), notes)
    return None, Decision("date", "", history.note or "nothing says when the code was written")


def _select_sources(
    closure: Closure | None, sources: Mapping[str, SourceFacts]
) -> tuple[SourceFacts, ...]:
    """Return the program's files, or all files if the program has no TensorFlow."""
    if closure and any(map(_uses_tensorflow, closure.sources)):
        return closure.sources
    return tuple(sources.values())


def _obey_major(text: str, images: Iterable[str]) -> Family:
    if text not in {"1", "2"}:
        raise _no_image_error(f"--tf {text!r} is not a version of TensorFlow", images)
    return Family("1" if text == "1" else "2", True, f"--tf {text}")


def _obey_minor(text: str, facts: _Facts, *, gpu: bool) -> Decision:
    """Return the decision for the user's version; any release of the image's minor will do."""
    match = re.match(r"[0-9]{1,3}\.[0-9]{1,3}", text)
    minor = match[0] if match else text
    if minor not in facts.images:
        variant = "GPU" if gpu else "CPU"
        message = f"--tf {text}: no {variant} image of the matrix has this TensorFlow"
        raise _no_image_error(message, facts.images)
    against = []
    if facts.family.is_certain and not minor.startswith(facts.family.likely):
        against.append(facts.family.reason)
    exact = next((item for item in _order(facts.statements) if item.minor), None)
    if exact and exact.minor != minor:
        against.append(_quote(exact))
    return Decision("tensorflow", minor, f"--tf {text}", (), tuple(against))


def _no_image_error(message: str, minors: Iterable[str]) -> InputError:
    listed = ", ".join(minors)
    return InputError(
        f"{message}. Choose one of {listed} with --tf. Nothing was built.", "no-image"
    )


def _order(statements: Iterable[Statement]) -> list[Statement]:
    """Return people's statements by weight; they are already ordered by distance and kind."""
    people = [statement for statement in statements if not statement.by_bot]
    return sorted(people, key=lambda item: (not item.is_near, _weigh(item)))


def _weigh(statement: Statement) -> int:
    return _IMPLIED if statement.is_implied else _WEIGHTS.get(statement.kind, 0)


def _decide(facts: _Facts) -> Decision:
    """Return the decision by the code, an exact statement, or bounds and the date."""
    against = _describe_bots(facts.statements)
    ordered = _order(facts.statements)
    exact = [item for item in ordered if item.minor and _applies(item, facts, item.minor)]
    followed = None
    known = set()
    for statement in exact:
        problem = _find_problem(statement, facts, ordered)
        if not problem and (not followed or _is_newer_in_ci(statement, followed)):
            followed = statement
        elif problem or (followed and statement.minor != followed.minor):
            said = (statement.evidence.path, statement.minor)
            against += [] if said in known else [_quote(statement) + problem]
            known.add(said)
    if followed:
        decision = _follow_statement(followed, facts)
    else:
        decision = _decide_by_date(facts, [item for item in ordered if not item.minor])
    notes = [*dict.fromkeys((*against, *decision.against))]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"{len(notes) - _MOST_NOTES} more statements differ"]
    return decision._replace(against=tuple(notes))


def _is_newer_in_ci(statement: Statement, other: Statement) -> bool:
    """Return whether a CI file also tests a newer version than another of its statements."""
    is_same = statement.kind == other.kind == "CI" and statement.is_near == other.is_near
    is_same_file = is_same and statement.evidence.path == other.evidence.path
    return is_same_file and _numbers(statement.minor) > _numbers(other.minor)


def _describe_bots(statements: Iterable[Statement]) -> list[str]:
    """Return the statements of bots, which are not followed."""
    bots = [statement for statement in statements if statement.by_bot]
    return [f"{_quote(statement)}{_NOT_FOLLOWED} a bot wrote it" for statement in bots]


def _find_problem(statement: Statement, facts: _Facts, ordered: Sequence[Statement]) -> str:
    """Return why an exact statement cannot be followed; empty if it can."""
    family = facts.family
    if _major(statement.minor) not in {"1", "2"}:
        return ", which is no version of TensorFlow"
    if family.is_certain and _major(statement.minor) != family.likely:
        return f"{_NOT_FOLLOWED} {family.reason}"
    released = FIRST_ALPHA if statement.minor == "2.0" else RELEASE_DAYS.get(statement.minor)
    if released and facts.day and released > facts.day + _LONGEST_DELAY:
        return f", which is of {released}, but the code is of {facts.day}"
    for bound in ordered:
        heavier = bound.is_near and _weigh(bound) < _weigh(statement)
        if heavier and not bound.minor and not _admits(bound, facts, statement.minor):
            return f"{_NOT_FOLLOWED} {_quote(bound)}"
    return ""


def _follow_statement(statement: Statement, facts: _Facts) -> Decision:
    minor = _nearest_minor(statement.minor, facts)
    reason = _quote(statement)
    if minor != statement.minor:
        reason += f", and {minor} is the nearest image"
    evidence: tuple[Evidence, ...] = (statement.evidence,)
    if facts.family.is_certain:
        reason = f"{facts.family.reason}; {reason}"
        evidence = (*facts.family.evidence, *evidence)
    return Decision("tensorflow", minor, reason, evidence)


def _decide_by_date(facts: _Facts, bounds: Sequence[Statement]) -> Decision:
    """Return the newest minor within the family and the bounds that the code can have known."""
    near = [bound for bound in bounds if bound.is_near]
    minors, used, against = _narrow(facts, facts.family.likely, near)
    if against and not facts.family.is_certain:
        other = "1" if facts.family.likely == "2" else "2"
        candidate = _narrow(facts, other, near)
        if not candidate[2]:
            minors, used, against = candidate
    known = [minor for minor in minors if facts.day and RELEASE_DAYS[minor] <= facts.day]
    if known:
        stated, why = known[-1], f"{known[-1]} was the newest on {facts.day}"
    elif facts.day:
        stated, why = minors[0], f"{minors[0]} is the first one after the code of {facts.day}"
    else:
        usual = _UNDATED[_major(minors[0])]
        later = [minor for minor in minors if _numbers(minor) >= _numbers(usual)]
        stated = (later or minors[-1:])[0]
        why = f"nothing dates the code, and {stated} runs most code of TensorFlow {stated[0]}"
    minor = _nearest_minor(stated, facts)
    clauses = [facts.family.reason, *map(_quote, used[:3]), why]
    reason = "; ".join(clauses)
    if minor != stated:
        reason += f", and {minor} is the nearest image"
    evidence = (*facts.family.evidence, *(bound.evidence for bound in used))
    return Decision("tensorflow", minor, reason, evidence, tuple(against))


def _narrow(
    facts: _Facts, major: str, bounds: Sequence[Statement]
) -> tuple[list[str], list[Statement], list[str]]:
    """Return the minors within the bounds, the bounds that narrow, and those that leave nothing."""
    minors = [minor for minor in RELEASE_DAYS if _major(minor) == major]
    oldest = _numbers(facts.family.oldest or "0")
    minors = [minor for minor in minors if _numbers(minor) >= oldest] or minors
    used, against = [], []
    for bound in bounds:
        kept = [minor for minor in minors if _admits(bound, facts, minor)]
        if not kept:
            against.append(f"{_quote(bound)}{_NOT_FOLLOWED} {facts.family.reason}")
        elif len(kept) < len(minors):
            used.append(bound)
        minors = kept or minors
    first, last = _numbers(facts.minimum_python), _numbers(facts.maximum_python)
    fitting = [minor for minor in minors if first <= _python_of(facts, minor) <= last]
    return fitting or minors, used, against


def _python_of(facts: _Facts, minor: str) -> tuple[int, int]:
    return _numbers(facts.images[_nearest_minor(minor, facts)].python_minor)


def _nearest_minor(minor: str, facts: _Facts) -> str:
    """Return the minor of the nearest image of the same major version, the newer of two.

    InputError: there is none.
    """
    if minor in facts.images:
        return minor
    major = _major(minor)
    position = _numbers(minor)[1] if minor.startswith(major) else 0
    same = [other for other in facts.images if _major(other) == major]
    if not same:
        message = (
            f"The program needs TensorFlow {major} ({facts.family.reason}), which no image has"
        )
        raise _no_image_error(message, facts.images)
    return min(
        reversed(same),
        key=lambda other: (abs(_numbers(other)[1] - position), _numbers(other)[1] < position),
    )


def _admits(bound: Statement, facts: _Facts, minor: str) -> bool:
    """Return whether a statement allows a release of a minor, or does not apply to its image."""
    if not _applies(bound, facts, minor):
        return True
    specifier = SpecifierSet(bound.specifier)
    return any(specifier.contains(f"{minor}.{patch}", prereleases=True) for patch in range(10))


def _applies(statement: Statement, facts: _Facts, minor: str) -> bool:
    """Return whether a statement's marker is true in the image of a minor."""
    if not statement.marker:
        return True
    python = facts.images[_nearest_minor(minor, facts)].version_of("python")
    try:
        return Marker(statement.marker).evaluate({**marker_environment(python), "extra": ""})
    except (UndefinedEnvironmentName, ValueError, RecursionError):  # nothing can be compared
        return False


def _describe_python(
    image: Image, code: Sequence[SourceFacts], asked: tuple[Evidence, str] | None
) -> Decision:
    """Return the decision about Python, which the image decides."""
    own = _numbers(image.python_minor)
    against = []
    if asked and not SpecifierSet(asked[1]).contains(image.version_of("python")):
        version = asked[1].removeprefix("==").removesuffix(".*")
        against.append(f"{asked[0]} asks for Python {version}")
    newer = [source for source in code if _numbers(source.minimum_python) > own]
    if newer:
        first = max(newer, key=lambda source: _numbers(source.minimum_python))
        files = first.path if len(newer) == 1 else f"{first.path} and {len(newer) - 1} more files"
        verb = "needs" if len(newer) == 1 else "need"
        against.append(f"{files} {verb} Python {first.minimum_python} or newer")
    for source in code:
        if source.maximum_python and _numbers(source.maximum_python) < own:
            against.append(f"{source.path} needs Python {source.maximum_python} or older")
        if source.broken is not None:
            against.append(f"{Evidence(source.path, source.broken)} does not parse")
    reason = "the Python of the image"
    return Decision("python", image.python_minor, reason, (), tuple(against[:_MOST_NOTES]))


def _quote(statement: Statement) -> str:
    words = statement.words or f"tensorflow{statement.specifier}"
    if statement.kind == "check":
        return f"{statement.evidence} stops without {words}"
    return printable(f'{statement.evidence} says "{without_logins(words)}"')


def _major(minor: str) -> str:
    """Return the major version whose images are used; 1 also for 0.x."""
    return "1" if minor.startswith("0.") else minor.partition(".")[0]


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)
