"""Resolve a program's packages as of the day of its code, with weaker requests if need be."""

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from imgbuild.adopt.package_tables import FLOORS
from imgbuild.adopt.packages import (
    PackageRequest,
    adapt_base,
    drop_versions,
    first_day,
    system_packages,
)
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.files import work_folder
from imgbuild.core.unpacking import DAMAGED_ZIP
from imgbuild.extend.additions import UnfitError, limit_uploads, lock_additions, read_previous
from imgbuild.extend.base_image import BaseImage
from imgbuild.locks.lockfile import Lock
from imgbuild.locks.resolver import NEVER_COMPILED, ReadMetadata, Unbuilt, call_uv

#: Limits: requests that are tried, packages that are tried alone, and files of a wheel.
MOST_TRIES, _MOST_ALONE, _MOST_FILES = 60, 12, 200_000
#: Limits: runs of uv that search newest releases, and versions that are tried again in the end.
_MOST_PROBES, _MOST_STRENGTHENED = 30, 6
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ABSENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*) (?:was|were) not found in the ")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)$", re.MULTILINE)
#: uv's hint that the limit of upload times hides releases.
_FILTERED = re.compile(r"`([A-Za-z0-9][A-Za-z0-9._-]*)` was filtered by `exclude-newer`")
_ADVICE = re.compile(
    r" (?:hint: |Choose other versions, or remove them\.).*|^These packages do not fit.*?: "
)


@dataclass(frozen=True)
class Resolution:
    """The lock of a request, and how it was resolved.

    - ``requirements``: the requirements that were resolved, and constraints after ``-c``
    - ``left_out``: packages that cannot be had, and why
    - ``rung``: how far the request was weakened; empty if nothing was resolved
    - ``apt``: Debian packages that the locked packages load
    """

    lock: Lock | None
    requirements: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    rung: str = ""
    apt: tuple[str, ...] = ()


def resolve_as_of(  # noqa: PLR0913 - the request, the base and the index
    request: PackageRequest,
    base: BaseImage,
    day: date | None,
    path: Path,
    *,
    environment: Mapping[str, str],
    read_metadata: ReadMetadata,
) -> Resolution:
    """Lock the packages of a request as of ``day``, and write the lock to ``path``.

    The request is weakened until it can be resolved: the author's pins as of the day, pins without
    the day, no pins for the packages that uv rejects, no pins at all, the newest releases. Then
    packages are left out one by one, the least needed first. Wheels are preferred to sources, and
    heavy packages are never compiled. The lock is None if no package remains.

    InputError: the file at ``path`` is not a lock, or uv's settings are not usable.
    CheckFailedError: there is no solution after `MOST_TRIES` tries.
    MachineError: the index cannot be reached, or this machine cannot generate metadata.
    """
    read_previous(path)
    return _Ladder(request, adapt_base(base), path, environment, read_metadata).climb(day)


class _Option(NamedTuple):
    """A way to request a package; ``any_day``: also a release after the day of the code."""

    text: str
    any_day: bool = False


class _Failure(NamedTuple):
    """Why a request cannot be resolved, and the requested packages that the reason names."""

    reason: str
    names: frozenset[str]

    @property
    def absent(self) -> frozenset[str]:
        """The requested packages that the index does not have."""
        absent = {str(canonicalize_name(name)) for name in _ABSENT.findall(self.reason)}
        return self.names & absent

    @property
    def summary(self) -> str:
        """The reason without advice."""
        return _ADVICE.sub("", self.reason).strip()

    @property
    def hidden(self) -> set[str]:
        """The packages of which uv says that a limit of upload times hides releases."""
        return {str(canonicalize_name(name)) for name in _FILTERED.findall(self.reason)}


@dataclass
class _Ladder:
    """The search for a request that can be resolved.

    - ``texts``: the requirements that are not left out, by canonical name
    - ``newest``: the newest release of each package as of the day, as a requirement
    """

    request: PackageRequest
    base: BaseImage
    path: Path
    environment: Mapping[str, str]
    read_metadata: ReadMetadata
    texts: dict[str, str] = field(default_factory=dict)
    newest: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failure: _Failure = field(default_factory=lambda: _Failure("", frozenset()))
    tries: int = 0

    def climb(self, day: date | None) -> Resolution:
        self.texts = {_name(text): text for text in self.request.requirements}
        if day and self.texts and self._lacks_upload_times():
            day = None
            self.notes.append("The package index does not say when it got its files.")
        # uv avoids source distributions, if need be by a much older release of the package that
        # requires them. So the newest release of each package is requested first, as pip does.
        self.newest = self._find_newest(day)
        while self.texts:
            for limit in dict.fromkeys((day, None)):
                if resolution := self._climb_as_of(limit):
                    return resolution
                if self.failure.absent:
                    break
            else:
                self._leave_out_one()
            self._leave_out_absent(self.failure)
        return Resolution(None, (), tuple(self.left_out.items()), tuple(self.notes))

    def _climb_as_of(self, day: date | None) -> Resolution | None:
        """Weaken the request until it can be resolved as of a day; None: it cannot.

        First, packages that uv names and nobody requested may be newer. Then, the request for each
        package that uv names is weakened.
        """
        options = {name: self._list_options(text, day) for name, text in self.texts.items()}
        levels = dict.fromkeys(options, 0)
        newer, doubtful, reasons = set[str](), set[str](), dict[str, str]()
        kept = {*self.base.packages, *options}
        while True:
            chosen = {name: options[name][level] for name, level in levels.items()}
            if resolution := self._try(chosen, day, newer, reasons):
                pinned = [name for name in doubtful if _has_versions(self.texts[name])]
                first = {name: options[name][0] for name in sorted(pinned)}
                return self._strengthen(resolution, chosen, first, day, newer, reasons)
            if self.failure.absent:
                return None
            needed = self.failure.hidden - kept - newer
            newer |= needed
            weaker = self._find_weaker(options, levels)
            if not needed and not weaker:
                return None
            if not needed:
                if len(weaker) > 1:  # only one of them may be the cause
                    doubtful |= weaker.keys()
                levels |= weaker
                reasons |= dict.fromkeys(weaker, self.failure.summary)

    def _find_weaker(
        self, options: Mapping[str, Sequence[_Option]], levels: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the next levels of the packages that uv names.

        If uv says that the day hides releases of some of them, only these may be newer.
        """
        hidden, weaker = dict[str, int](), dict[str, int]()
        for name in self.failure.names:
            for level in range(levels[name] + 1, len(options[name])):
                weaker.setdefault(name, level)
                if options[name][level].any_day and name in self.failure.hidden:
                    hidden.setdefault(name, level)
        return hidden or weaker

    def _strengthen(  # noqa: PLR0913, PLR0917 - the state of the search
        self,
        resolution: Resolution,
        chosen: Mapping[str, _Option],
        first: Mapping[str, _Option],
        day: date | None,
        newer: set[str],
        reasons: Mapping[str, str],
    ) -> Resolution:
        """Return a resolution with more of the author's versions, ``first``, if there is one."""
        for name in [*first][:_MOST_STRENGTHENED]:
            stronger = {**chosen, name: first[name]}
            remaining = {other: reason for other, reason in reasons.items() if other != name}
            if better := self._try(stronger, day, newer, remaining):
                resolution, chosen, reasons = better, stronger, remaining
        return resolution

    def _list_options(self, text: str, day: date | None) -> list[_Option]:
        """Return the ways to request a package, the strictest first."""
        name, bare = _name(text), drop_versions(text)
        if _is_pinned(text):
            options = [_Option(text)]
        else:
            options = [_Option(self.newest.get(name, text)), _Option(text)]
            options.append(_Option(text, any_day=True))
        options += [_Option(bare), _Option(bare, any_day=True)]
        if day is None:
            options = [option._replace(any_day=False) for option in options]
        return list(dict.fromkeys(options))

    def _try(
        self,
        chosen: Mapping[str, _Option],
        day: date | None,
        newer: set[str],
        reasons: Mapping[str, str],
    ) -> Resolution | None:
        """Return the resolution of a request; if there is none, store the failure."""
        self.tries += 1
        if self.tries > MOST_TRIES:
            raise CheckFailedError(
                f"After {MOST_TRIES} tries, the packages still do not fit {self.base.name}: "
                f"{self.failure.summary} Name the packages that the program needs."
            )
        texts = [option.text for option in chosen.values()]
        days = self._later_days(chosen, day, newer) if day else {}
        requested = (*texts, *(f"-c {text}" for text in self.request.constraints))
        try:
            lock = self._lock(requested, self.path, day, days)
        except (UnfitError, CheckFailedError) as error:
            self.failure = self._explain(str(error), texts)
            return None
        changed = [name for name in reasons if chosen[name].text != self.texts[name]]
        changed = [name for name in changed if _has_versions(self.texts[name])]
        notes = [f"{self.texts[name]} is not kept: {reasons[name]}" for name in changed]
        later = [*newer, *(name for name, option in chosen.items() if option.any_day)]
        notes += [f"{name} may be newer than the code" for name in sorted(later)]
        title = "the author's versions where they fit" if changed else "the author's versions"
        title += f", as of {day}" if day else ", and newer packages that they need"
        return Resolution(
            lock,
            requested,
            tuple(self.left_out.items()),
            (*self.notes, *notes),
            title,
            system_packages(lock.versions),
        )

    def _lock(
        self,
        requested: Sequence[str],
        path: Path,
        day: date | None = None,
        newer: Mapping[str, date | None] | None = None,
    ) -> Lock:
        return lock_additions(
            requested,
            self.base,
            path,
            environment=self.environment,
            read_metadata=self.read_metadata,
            exclude_newer=day,
            newer=newer or {},
            overrides=self.request.overrides,
            wheels_only=self.request.wheels_only,
        )

    def _later_days(
        self, chosen: Mapping[str, _Option], day: date, newer: set[str]
    ) -> dict[str, date | None]:
        """Return the later days of packages: those that are older than their first usable release.

        A version that the author pinned needs no day.
        """
        days: dict[str, date | None] = {}
        for name in FLOORS.keys() | NEVER_COMPILED:
            first = first_day(name, self.base)
            if first and first > day:
                days[name] = first
        days |= dict.fromkeys(newer)
        for name, option in chosen.items():
            if option.any_day or (_is_pinned(self.texts[name]) and _is_pinned(option.text)):
                days[name] = None
        return days

    def _explain(self, reason: str, requirements: Sequence[str]) -> _Failure:
        words = {canonicalize_name(word.strip(".-_")) for word in _NAME.findall(reason)}
        names = {_name(text) for text in requirements}
        return _Failure(reason, frozenset(names & words))

    def _find_newest(self, day: date | None) -> dict[str, str]:
        """Return the newest release of each package alone, as a requirement by canonical name."""
        texts = {name: text for name, text in self.texts.items() if not _is_pinned(text)}
        options = ["--no-deps", "--no-header", "--no-annotate", *self.base.target.options]
        if day:
            days = self._later_days({}, day, set())
            options += limit_uploads(day, days, self.base)
        options += ["--constraint=constraints.txt", "--output-file=newest.txt", "newest.in"]
        constraints = [f"{name}{bounds}" for name, bounds in self.base.companions.items()]
        constraints += self.request.constraints
        unbuilt = Unbuilt(wheels_only={*self.request.wheels_only})
        with work_folder("adopt") as folder:
            (folder / "constraints.txt").write_text("\n".join(constraints), encoding="utf-8")
            for _ in range(_MOST_PROBES):
                if not texts:
                    break
                (folder / "newest.in").write_text("\n".join(texts.values()), encoding="utf-8")
                result = call_uv(options, folder, self.environment, unbuilt)
                if result.ok:
                    pins = _PIN.findall((folder / "newest.txt").read_text(encoding="utf-8"))
                    versions = {str(canonicalize_name(name)): version for name, version in pins}
                    texts = {name: text for name, text in texts.items() if name in versions}
                    return {
                        name: f"{drop_versions(text)}=={versions[name]}"
                        for name, text in texts.items()
                    }
                if unbuilt.learn(result.errors, lambda _: False):
                    continue
                failure = self._explain(result.errors, [*texts.values()])
                if not failure.names:
                    break
                self._leave_out_absent(failure)
                texts = {name: text for name, text in texts.items() if name not in failure.names}
        return {}

    def _leave_out_absent(self, failure: _Failure) -> None:
        for name in failure.absent:
            self.left_out[name] = "it is not on the package index"
        self.texts = {name: text for name, text in self.texts.items() if name not in self.left_out}

    def _leave_out_one(self) -> None:
        """Leave out the least needed package that cannot be had alone, or else the least needed."""
        failure = self.failure
        if not failure.names:
            self._require_base()
        optional = [name for name in self.request.optional if name in self.texts]
        ordered = [*optional, *(name for name in reversed(self.texts) if name not in optional)]
        suspects = [name for name in ordered if name in failure.names] or ordered
        for name in suspects[:_MOST_ALONE]:
            if reason := self._try_alone(drop_versions(self.texts[name])):
                self.left_out[name] = reason
                return
        self.failure = failure
        self.left_out[suspects[0]] = failure.summary

    def _require_base(self) -> None:
        """Raise MachineError if the base itself cannot be resolved, so that nothing fits it."""
        with work_folder("adopt") as folder:
            try:
                self._lock([], folder / "base.lock.txt")
            except UnfitError:
                reason = self.failure.summary
                raise MachineError(
                    f"The package index does not have the packages of {self.base.name}, so nothing "
                    f"can be added to it: {reason} Use another index (docs/mirrors.md)."
                ) from None

    def _try_alone(self, requirement: str) -> str:
        """Return why a package cannot be added to the base alone, or an empty text."""
        constraints = [f"-c {text}" for text in self.request.constraints]
        with work_folder("adopt") as folder:
            try:
                self._lock([requirement, *constraints], folder / "alone.lock.txt")
            except (UnfitError, CheckFailedError) as error:
                self.failure = self._explain(str(error), [requirement])
                return self.failure.summary
        return ""

    def _lacks_upload_times(self) -> bool:
        """Return whether uv can use no package of the index if there is a limit in the future."""
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        limit = f"--exclude-newer={tomorrow:%Y-%m-%dT%H:%M:%SZ}"
        with work_folder("adopt") as folder:
            for name in [*self.texts][:_MOST_ALONE]:
                (folder / "probe.in").write_text(name, encoding="utf-8")
                options = ["--no-deps", *self.base.target.options]
                options += ["--output-file", "probe.txt", "probe.in"]
                if call_uv([limit, *options], folder, self.environment).ok:
                    return False
                if call_uv(options, folder, self.environment).ok:
                    return True
        return False


def find_missing_modules(
    modules: Mapping[str, str], lock: Lock, find_file: Callable[[str], Path | None]
) -> tuple[str, ...]:
    """Return the modules that the wheel of their distribution does not have.

    ``find_file`` returns the downloaded file with a sha256, or None. Source distributions and files
    that are not there are not checked.
    """
    missing = []
    for module, name in modules.items():
        for digest in lock.hashes.get(name, ()):
            path = find_file(digest)
            names = _read_modules(path) if path else frozenset()
            if names:
                if module not in names:
                    missing.append(module)
                break
    return tuple(missing)


def _read_modules(wheel: Path) -> frozenset[str]:
    """Return the top-level names in a wheel, whose content is not trusted; empty if it is none."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            paths = archive.namelist()
    except (*DAMAGED_ZIP, OSError, ValueError, NotImplementedError):
        return frozenset()
    if not any(path.endswith(".dist-info/RECORD") for path in paths[:_MOST_FILES]):
        return frozenset()
    names = set()
    for path in paths[:_MOST_FILES]:
        # NAME.data/purelib also has modules.
        place = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", path)
        first, slash, _ = place.partition("/")
        names.add(first if slash else first.partition(".")[0])
    return frozenset(names)


def _name(text: str) -> str:
    return str(canonicalize_name(Requirement(text).name))


def _has_versions(text: str) -> bool:
    return bool(Requirement(text).specifier)


def _is_pinned(text: str) -> bool:
    return any(specifier.operator == "==" for specifier in Requirement(text).specifier)
