"""Turn requirement lines and imports into a request that fits an image."""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from imgbuild.adopt.choice import Decision
from imgbuild.adopt.closure import Closure
from imgbuild.adopt.package_tables import (
    BACKPORTS,
    BUILD_PACKAGES,
    CEILINGS,
    COMPANIONS,
    CONDA_PARTS,
    DISTRIBUTIONS,
    FIRST_WHEELS,
    FLOORS,
    HEADLESS,
    KNOWN_PACKAGES,
    NEEDED_BACKPORTS,
    NOTEBOOK_TOOLS,
    NOWHERE,
    NUMPY_FRIENDS,
    OPTIONAL,
    OTHER_SYSTEMS,
    OWN_NAMES,
    PYTHON2_MODULES,
    RENDERERS,
    RENDERING,
    SYSTEM_PACKAGES,
    TENSORFLOW_PARTS,
    TOOLS,
    USED_WITHOUT_IMPORT,
)
from imgbuild.adopt.repository import Evidence
from imgbuild.adopt.source_facts import Import
from imgbuild.adopt.statements import RequestedLine
from imgbuild.core.text import printable, without_logins
from imgbuild.extend.base_image import BaseImage
from imgbuild.extend.requirement_files import image_facts
from imgbuild.locks.requirement_rules import (
    DIFFERS,
    LEFT_OUT,
    OTHER_TENSORFLOW,
    TENSORFLOW_NAMES,
    ImageFacts,
    judge_line,
    parse_line,
    repair_line,
)
from imgbuild.locks.resolver import NEVER_COMPILED, index_requirement

#: The value of a decision about a line or an import that is not requested.
LEFT = "left out"
#: Limits: characters of a line, and lines.
_LONGEST, _MOST_LINES = 2000, 500
#: The number of lines above which they may be a whole environment, as `pip freeze` lists it.
_WHOLE_ENVIRONMENT = 25
#: Limit for the packages that a decision names.
_MOST_NAMED = 6
#: A name and a version after a hyphen or a space: ``pandas-1.2``, ``tqdm 4.19.5``.
_NO_OPERATOR = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*?)(?:-|[ \t]+)v?([0-9]+(?:\.[0-9]+)+)")
_TWISTED = re.compile(r"=([<>])")
_INDEX_OPTION = re.compile(r"-i|-f|--(?:extra-)?index-url|--find-links|--no-index|--trusted-host")
_ADDRESS = re.compile(r"\S*://\S*|(?:git|hg|svn|bzr)\+\S+|git@\S+")
#: Lines that are no requirements, and why they are left out.
_KINDS = {
    _INDEX_OPTION: "the package index is a setting of imgbuild (docs/mirrors.md)",
    re.compile("-e|--editable"): "it is code of the repository, which PYTHONPATH names",
    re.compile("-"): "it is an option of pip",
    re.compile(r"[.~/]|[^\s/]+/|\S+\.(?:whl|zip|tar\.gz|tar\.bz2|txt)$"): (
        "it is a file or a folder, not a package of the index"
    ),
}
#: Why an imported module that nobody knows is left out.
_UNKNOWN = (
    "no package is known for this import, and the repository names none; if it is on the package "
    "index, add its name under `pip` in imgbuild.adopt.yaml"
)
_OWN_PACKAGE = "it is this repository"
#: `scipy.misc` lost imread, imresize and imsave in 1.3, and they need Pillow.
#: Source: release notes of SciPy 1.3.0; tested by import of 1.2.3.
_SCIPY_MISC = "<1.3"


@dataclass(frozen=True)
class PackageRequest:
    """The packages to add to an image.

    - ``requirements``: requirements with the author's pins
    - ``optional``: names of those that are left out if they cannot be had, the least needed first
    - ``constraints``: bounds that the code needs even if the author's pins cannot be had
    - ``overrides``: ``NAME=REQUIREMENT``, which replaces what other packages require
    - ``wheels_only``: names of packages that could not be compiled
    - ``apt``, ``build_apt``: Debian packages, and those that only builds of packages need
    - ``modules``: the distribution of each imported module
    """

    requirements: tuple[str, ...]
    optional: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    build_apt: tuple[str, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    wheels_only: tuple[str, ...] = ()


def request_packages(
    requested: Sequence[RequestedLine],
    closure: Closure,
    base: BaseImage,
    named: Collection[str] = (),
) -> PackageRequest:
    """Return the packages that a program needs beside those of the base.

    Lines of the repository come first, in the author's versions if they fit the base. Then come
    imports that neither these nor the base provide. Each line that is changed or dropped, and each
    added package, is a decision. ``named`` are the canonical names of packages that the repository
    asks for anywhere: only these, and well-known ones, are added for imports.
    """
    base = adapt_base(base)
    collected = _Collected(base, closure, frozenset(named))
    collected.add_lines(requested)
    collected.add_imports()
    collected.add_companions()
    return collected.request()


def adapt_base(base: BaseImage) -> BaseImage:
    """Return the base with bounds for packages that work only with some NumPy or TensorFlow."""
    facts = image_facts(base)
    bounds = dict(base.bounds)
    for name in FLOORS.keys() - base.packages.keys():
        if floor := find_floor(name, base):
            bounds.setdefault(name, f">={floor[0]}")
    major = facts.tensorflow.partition(".")[0]
    for name in CEILINGS.keys() - base.packages.keys():
        if major in CEILINGS[name]:
            bounds.setdefault(name, CEILINGS[name][major])
    return replace(base, bounds=bounds)


def find_floor(name: str, base: BaseImage) -> tuple[str, date] | None:
    """Return the oldest release of a package that works with the base's NumPy, and its day."""
    own = Version(base.packages.get("numpy", "0"))
    for numpy, version, day in FLOORS.get(name, ()):
        if own >= Version(numpy):
            return version, day
    return None


def first_day(name: str, base: BaseImage) -> date | None:
    """Return the day from which there are releases of a package for the base, if it is known."""
    floor = find_floor(name, base)
    python = ".".join(base.python.split(".")[:2])
    wheels = FIRST_WHEELS.get(python) if name in NEVER_COMPILED else None
    days = [day for day in (floor and floor[1], wheels) if day]
    return max(days, default=None)


def system_packages(names: Iterable[str]) -> tuple[str, ...]:
    """Return the Debian packages that packages with these canonical names load."""
    packages = set[str]()
    for name in names:
        packages.update(SYSTEM_PACKAGES.get(name, ()))
    return tuple(sorted(packages))


@dataclass
class _Collected:
    """The request so far: requirements and decisions, in order."""

    base: BaseImage
    closure: Closure
    named: frozenset[str]
    requirements: dict[str, str] = field(default_factory=dict)
    optional: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    constraints: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.facts = image_facts(self.base)
        self.places: dict[str, Evidence] = {}
        self.asked: dict[str, tuple[str, Evidence]] = {}
        self.imported = {
            canonicalize_name(find_distribution(imported.module))
            for imported, _ in self.closure.imports
        }
        self.windows: list[Evidence] = []
        for source in self.closure.sources:
            self.windows += [Evidence(source.path, line) for line in source.windows]

    def add_lines(self, requested: Sequence[RequestedLine]) -> None:
        for line in requested[_MOST_LINES:]:
            self._decide(line.text, LEFT, f"only {_MOST_LINES} lines are read", line.evidence)
            break
        lines = list[tuple[RequestedLine, Requirement, str]]()
        for line in requested[:_MOST_LINES]:
            try:
                lines.append((line, *_read_line(line.text, self.facts)))
            except ValueError as error:
                self._decide(line.text, LEFT, str(error), line.evidence)
        lines = self._drop_frozen(lines)
        moves_numpy = any(self._pins_other_numpy(requirement) for _, requirement, _ in lines)
        for line, requirement, note in lines:
            self._add_line(line, requirement, note, moves_numpy=moves_numpy)

    def _drop_frozen(
        self, lines: list[tuple[RequestedLine, Requirement, str]]
    ) -> list[tuple[RequestedLine, Requirement, str]]:
        """Leave out packages without an import if the lines list a whole environment."""
        unused = [row for row in lines if not self._is_needed(canonicalize_name(row[1].name))]
        if len(lines) <= _WHOLE_ENVIRONMENT or 2 * len(unused) < len(lines):
            return lines
        names = [requirement.name for _, requirement, _ in unused]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        listed = f"{', '.join(names[:_MOST_NAMED])}{more}"
        reason = "the program does not import them; those that other packages need are added"
        self._decide(listed, LEFT, reason, unused[0][0].evidence)
        return [row for row in lines if row not in unused]

    def _is_needed(self, name: str) -> bool:
        """Return whether a program imports a package, or may use it without an import."""
        return (
            self._is_imported(name)
            or name in USED_WITHOUT_IMPORT
            or name in self.base.packages
            or name in TENSORFLOW_NAMES
        )

    def _pins_other_numpy(self, requirement: Requirement) -> bool:
        there = self.base.packages.get("numpy")
        is_numpy = canonicalize_name(requirement.name) == "numpy"
        return bool(is_numpy and there and not requirement.specifier.contains(there))

    def _add_line(
        self, line: RequestedLine, requirement: Requirement, note: str, *, moves_numpy: bool
    ) -> None:
        name, evidence = str(canonicalize_name(requirement.name)), line.evidence
        if line.constrains and not self._is_imported(name):
            return
        if self._is_there(line, requirement):
            return
        if reason := self._refuse_requirement(name, requirement):
            self._decide(line.text, LEFT, reason, evidence)
            return
        text, reason = self._fit_versions(name, requirement, moves_numpy=moves_numpy)
        reason = reason or note
        if name in HEADLESS and not self.windows:
            text = HEADLESS[name] + text[len(requirement.name) :]
            reason = "the program opens no window of OpenCV, and this one needs no display"
            name = HEADLESS[name]
        if name in OPTIONAL:
            self.optional.append(name)
        elif not self._is_imported(name):
            self.unused.append(name)
        self._require(name, text, evidence)
        if reason:
            self._decide(line.text, text, reason, evidence)

    def _is_imported(self, name: str) -> bool:
        """Return whether the program imports a distribution, or another one with its modules."""
        plain = HEADLESS.get(name, name)
        return bool({name, plain, plain.replace("-contrib", "")} & self.imported)

    def _is_there(self, line: RequestedLine, requirement: Requirement) -> bool:
        """Return whether the base or an earlier line has a package, and report other versions."""
        name = str(canonicalize_name(requirement.name))
        there = self.base.packages.get(name)
        if there and name not in TENSORFLOW_NAMES:
            if not requirement.specifier.contains(there, prereleases=True):
                self._decide(line.text, LEFT, f"the image has {there}", line.evidence)
            return True
        asked, place = self.asked.get(name, ("", line.evidence))
        if not asked or (asked == requirement.name and requirement.specifier):
            self.asked[name] = str(requirement), line.evidence
            return False
        if asked != str(requirement) and requirement.specifier:
            self._decide(line.text, LEFT, f"{place} asks for {asked}", line.evidence)
        return True

    def _fit_versions(
        self, name: str, requirement: Requirement, *, moves_numpy: bool
    ) -> tuple[str, str]:
        """Return a requirement in versions that fit the base, and why they differ."""
        text = str(requirement)
        verdict = judge_line(text, self.facts)
        if verdict.outcome == DIFFERS:
            return drop_versions(text), self._explain_bounds(name, verdict.reason)
        loosened = _loosen(requirement)
        if moves_numpy and name in NUMPY_FRIENDS and loosened != text:
            return loosened, "its pin is for another NumPy than the image's"
        return text, ""

    def _refuse_requirement(self, name: str, requirement: Requirement) -> str:
        """Return why a package is not requested, or an empty text."""
        verdict = judge_line(str(requirement), self.facts)
        is_unused = name not in self.imported
        is_for_notebooks = name in NOTEBOOK_TOOLS and not self.closure.entry.is_notebook
        reasons = (
            (name in {*TENSORFLOW_NAMES, *TENSORFLOW_PARTS}, self._own_tensorflow()),
            (name == "horovod", "it is compiled for an image, and this image is without it"),
            (name in CONDA_PARTS, "it is a part of conda's NumPy"),
            (name in OTHER_SYSTEMS, "it is for another system than Linux"),
            (is_unused and name in TOOLS, "the program does not import it"),
            (is_unused and is_for_notebooks, "the program is no notebook"),
            (verdict.outcome == OTHER_TENSORFLOW, verdict.reason),
            (name == canonicalize_name(self.closure.package_name or "-"), _OWN_PACKAGE),
        )
        return next((reason for applies, reason in reasons if applies), "")

    def _own_tensorflow(self) -> str:
        version = self.facts.tensorflow
        return f"the image has TensorFlow {version}" if version else "TensorFlow is the image's"

    def _explain_bounds(self, name: str, reason: str) -> str:
        floor = find_floor(name, self.base)
        if floor is None:
            return reason
        return f"NumPy {self.base.packages.get('numpy')} of the image needs {name}>={floor[0]}"

    def add_imports(self) -> None:
        """Add the distributions of imports, the required ones first."""
        order = ("required", "wanted", "optional")
        imports = sorted(self.closure.imports, key=lambda pair: order.index(pair[0].kind))
        for imported, evidence in imports:
            self._add_import(imported, evidence)
        # The least needed come first.
        self.optional.reverse()

    def _add_import(self, imported: Import, evidence: Evidence) -> None:
        module = imported.module.partition(".")[0]
        if reason := self._refuse_module(module):
            if module not in PYTHON2_MODULES or imported.kind == "required":
                self._decide(module, LEFT, reason, evidence)
            return
        distribution = find_distribution(imported.module)
        if module == "cv2" and self.windows:
            distribution = "opencv-python"
        name = str(canonicalize_name(distribution))
        contrib = name.replace("opencv-", "opencv-contrib-", 1)
        provided = {*self.base.packages, *self.requirements, *TENSORFLOW_NAMES, *TENSORFLOW_PARTS}
        self.modules[module] = contrib if contrib in self.requirements else name
        if name in provided or contrib in provided:
            return
        if self.facts.constraints.get(name) == SpecifierSet("<0"):
            reason = f"no release works with the image's TensorFlow {self.facts.tensorflow}"
            self._decide(module, LEFT, reason, evidence)
            return
        if name not in KNOWN_PACKAGES | self.named:
            if imported.kind != "optional":
                self._decide(module, LEFT, _UNKNOWN, evidence)
            return
        try:
            text = index_requirement(distribution)
        except ValueError:
            self._decide(module, LEFT, "it is not the name of a package", evidence)
            return
        if imported.kind != "required" or name in OPTIONAL:
            self.optional.append(name)
        reasons = {
            "wanted": "imported in a function or a condition",
            "optional": "imported if it is installed",
        }
        self._require(name, text, evidence)
        self._decide(name, "added", reasons.get(imported.kind, "imported"), evidence)

    def _refuse_module(self, module: str) -> str:
        """Return why the index is not asked for an imported module, or an empty text."""
        if module in PYTHON2_MODULES:
            return "it is a module of Python 2"
        if module in NOWHERE:
            is_repository = "a git repository (" in NOWHERE[module]
            advice = "; clone it into this folder, then run adopt again" if is_repository else ""
            return NOWHERE[module] + advice
        if module.lower() in OWN_NAMES:
            return "the repository does not hold it, and a package of this name is another one"
        return _OWN_PACKAGE if module == self.closure.package_name else ""

    def add_companions(self) -> None:
        """Add packages that others import without requiring them."""
        for source in self.closure.sources:
            if source.scipy_misc and "scipy" not in self.base.packages:
                self._bound_scipy(Evidence(source.path, source.scipy_misc[0]))
                break
        for name in tuple(self.requirements):
            for companion in COMPANIONS.get(name, ()):
                if companion not in self.requirements and companion not in self.base.packages:
                    self._require(companion, companion, self.places[name])

    def _bound_scipy(self, evidence: Evidence) -> None:
        floor = find_floor("scipy", self.base)
        reason = (
            f"scipy.misc has imread, imresize and imsave only in scipy{_SCIPY_MISC}, with Pillow"
        )
        python = Version(".".join(self.base.python.split(".")[:2]))
        if python >= Version("3.8") or (floor and Version(floor[0]) >= Version("1.3")):
            against = (f"no release of scipy{_SCIPY_MISC} is for the image's Python {python}",)
            self.decisions.append(Decision("scipy", LEFT, reason, (evidence,), against))
            return
        self.constraints["scipy"] = f"scipy{_SCIPY_MISC}"
        for name in ("scipy", "pillow"):
            if name not in self.requirements:
                self._require(name, name, evidence)
        self._decide("scipy", self.constraints["scipy"], reason, evidence)
        pinned = Requirement(self.requirements["scipy"])
        if _excludes(pinned.specifier, SpecifierSet(_SCIPY_MISC)):
            self.requirements["scipy"] = "scipy"

    def _require(self, name: str, text: str, evidence: Evidence) -> None:
        self.requirements[name] = text
        self.places[name] = evidence

    def _decide(self, subject: str, value: str, reason: str, evidence: Evidence) -> None:
        self.decisions.append(Decision(_shorten(subject), value, reason, (evidence,)))

    def request(self) -> PackageRequest:
        overrides = () if self.windows else self._overrides()
        apt = {*system_packages(self.requirements)}
        renders = any(source.renders for source in self.closure.sources)
        if renders and RENDERERS & self.requirements.keys():
            apt |= {*RENDERING}
        build_apt = set[str]()
        for name in self.requirements:
            build_apt.update(BUILD_PACKAGES.get(name, ()))
        return PackageRequest(
            tuple(self.requirements.values()),
            tuple(dict.fromkeys((*self.unused, *self.optional))),
            tuple(self.constraints.values()),
            overrides,
            tuple(sorted(apt)),
            tuple(sorted(build_apt)),
            self.modules,
            tuple(self.decisions),
        )

    def _overrides(self) -> tuple[str, ...]:
        """Replace OpenCV with windows wherever another package requires it."""
        contrib = "opencv-contrib-python-headless"
        replacements = dict(HEADLESS)
        if contrib in self.requirements:  # both have the same files
            replacements["opencv-python"] = contrib
        kept = {*self.base.packages, *self.requirements}
        return tuple(f"{name}={other}" for name, other in replacements.items() if name not in kept)


def find_distribution(module: str) -> str:
    """Return the name of the distribution that has a module, by the table or by its own name."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        prefix = ".".join(parts[:count])
        if prefix in DISTRIBUTIONS:
            return DISTRIBUTIONS[prefix]
    if parts[0] == "google":
        return "protobuf" if len(parts) < 2 else "-".join(parts[:3])
    return parts[0].replace("_", "-")


def _read_line(text: str, facts: ImageFacts) -> tuple[Requirement, str]:
    """Return the requirement that a line means, without marker, and why it differs from the line.

    ValueError: the line asks for no package of the index; the message says why.
    """
    text = text.strip().rstrip(",;").strip()
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} characters")
    meant, note = _repair(text)
    requirement = parse_line(meant)
    if requirement is None or requirement.url:
        raise ValueError(_explain_line(meant))
    name = str(canonicalize_name(requirement.name))
    if reason := _find_in_python(name, facts):
        raise ValueError(reason)
    try:
        clean = Requirement(index_requirement(str(requirement)))
        applies = not clean.marker or clean.marker.evaluate(
            {**(facts.environment or {}), "extra": ""}
        )
    except (UndefinedEnvironmentName, ValueError) as error:
        raise ValueError(f"it cannot be read: {_shorten(str(error))}") from None
    if not applies:
        raise ValueError("it is for another Python or another system")
    clean.marker = None
    if ".whl" in str(clean).lower():  # the path of a wheel can be a valid name
        raise ValueError("it is a file, not a package of the index")
    return clean, note


def _find_in_python(name: str, facts: ImageFacts) -> str:
    """Return why Python's own modules are enough, or an empty text."""
    python = (facts.environment or {}).get("python_version", "3")
    if needed := NEEDED_BACKPORTS.get(name):
        return "" if Version(python) < Version(needed) else f"Python {python} has it"
    if name in BACKPORTS or name in LEFT_OUT or name.replace("-", "_") in sys.stdlib_module_names:
        return LEFT_OUT.get(name, f"Python {python} has it")
    return ""


def _repair(text: str) -> tuple[str, str]:
    """Return the line that its writer meant, and why it differs; ValueError: it means none."""
    if match := _NO_OPERATOR.fullmatch(text):
        meant = f"{match[1]}=={match[2]}"
        return meant, f"it is read as {meant}"
    twisted = _TWISTED.sub(r"\1=", text)
    if twisted != text and parse_line(twisted):
        return twisted, f"it is read as {twisted}"
    meant, note = repair_line(text)
    if note and not meant:
        raise ValueError(note.partition(" is left out: ")[2] or note)
    return meant, note.partition(" is read as ")[2] and f"it is read as {meant}"


def _explain_line(text: str) -> str:
    """Return why a line is not a requirement of the index."""
    address = _ADDRESS.search(text)
    if address and not _INDEX_OPTION.match(text):
        return "it is a repository or a file of another site, not a package of the index"
    for kind, reason in _KINDS.items():
        if kind.match(text):
            return reason
    return "it is not a requirement"


def drop_versions(text: str) -> str:
    """Return a requirement without versions."""
    requirement = Requirement(text)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}"


def _loosen(requirement: Requirement) -> str:
    """Return a requirement whose exact version is a highest version."""
    loosened = [
        f"<={specifier.version}"
        if specifier.operator == "==" and "*" not in specifier.version
        else str(specifier)
        for specifier in requirement.specifier
    ]
    return drop_versions(str(requirement)) + ",".join(sorted(loosened))


def _excludes(asked: SpecifierSet, allowed: SpecifierSet) -> bool:
    """Return whether a pin is outside of the allowed versions."""
    pins = [specifier.version for specifier in asked if specifier.operator in {"==", "~=", ">="}]
    return any(not allowed.contains(pin.removesuffix(".*"), prereleases=True) for pin in pins)


def _shorten(text: str) -> str:
    text = printable(without_logins(text))
    return text if len(text) <= 100 else f"{text[:100]}…"
