"""The results of the suites in one image, and the store that keeps them on this machine."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from imgbuild.errors import InputError
from imgbuild.files import parse_json, write_text
from imgbuild.matrix.images import Image

#: The suite that a machine without a GPU skips, and one with a single GPU in part; an image is
#: tagged all the same.
NEEDS_GPU = "gpu_runs"
#: The longest reason of a failure in a line, in characters; reports have the whole message.
REASON_LENGTH = 200
_ASSERTED = "AssertionError: "
#: How the parts of a message begin that are the output of a command (tests/image/container.py).
_OUTPUT = "--- "
#: And where the command itself follows, whose arguments are no reason.
_COMMAND = "--- command"
#: What to do where checks ran out of time and none failed.
RUN_AGAIN = (
    "No check failed, but some ran out of time, as happens on a busy machine. Run the same command "
    "again: it runs only the suites that did not pass"
)
#: No suite takes a day; a damaged entry may say anything.
_LONGEST = 86_400.0

Entry = Mapping[str, Any]


class Verdict(StrEnum):
    """The outcome of a suite, or of all suites of an image. A skipped check is no passed one."""

    PASSED = "passed"
    FAILED = "failed"
    #: No check failed, but some reached their limit of time: a slow machine can be the reason.
    TIMED_OUT = "timed out"
    #: Some checks passed, the others were skipped.
    INCOMPLETE = "incomplete"
    #: Every check was skipped.
    SKIPPED = "skipped"
    #: The suites were not run, or not in their present form.
    UNKNOWN = "unknown"


def shorten(text: str, length: int) -> str:
    """Return a text without line ends, of at most ``length`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


@dataclass(frozen=True)
class TestFailure:
    __test__ = False  # the name begins with Test, but pytest must not collect it

    test: str
    message: str

    @property
    def reason(self) -> str:
        """The message in one line: of long output the first line, and the last that has an error.

        In a traceback pytest marks the message's lines with ``E``; below it are the values of the
        assertion.
        """
        lines = self.message.splitlines()
        lines = [line[1:].strip() for line in lines if line.startswith("E ")] or lines
        if lines and lines[0].startswith(_ASSERTED):
            message = takewhile(lambda line: not line.startswith("assert "), lines)
            lines = [line.removeprefix(_ASSERTED) for line in message]
        lines = [*takewhile(lambda line: line != _COMMAND, lines)]
        first, errors = "".join(lines[:1]), [line for line in lines if "error" in line.lower()]
        if errors and errors[-1] not in first:
            lines = [shorten(first, REASON_LENGTH // 2), "…", errors[-1]]
        lines = [*takewhile(lambda line: not line.startswith(_OUTPUT), lines)]
        return shorten(" ".join(lines), REASON_LENGTH)


@dataclass(frozen=True)
class TestSkip:
    __test__ = False

    test: str
    reason: str


@dataclass(frozen=True)
class SuiteResult:
    """One suite's outcome. ``seconds`` is the time of its checks.

    ``timed_out`` are checks that reached their limit of time, with what each waited for.
    ``before`` is the ISO 8601 time of the result, if the suite was not run again; ``found`` is the
    repository in which a signed provenance has it.
    """

    suite: str
    passed: int
    failures: tuple[TestFailure, ...]
    skips: tuple[TestSkip, ...]
    seconds: float
    before: str | None = None
    found: str | None = None
    timed_out: tuple[TestFailure, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The suite's outcome; one without any check has failed."""
        if self.timed_out and not self.failures:
            return Verdict.TIMED_OUT
        if self.failures or not (self.passed or self.skips):
            return Verdict.FAILED
        if self.skips:
            return Verdict.INCOMPLETE if self.passed else Verdict.SKIPPED
        return Verdict.PASSED

    @property
    def word(self) -> str:
        """The verdict in a table; a failure must be found in a long line."""
        loud = self.verdict in {Verdict.FAILED, Verdict.TIMED_OUT}
        return self.verdict.upper() if loud else str(self.verdict)

    @property
    def ok(self) -> bool:
        """Whether this suite lets the image be tagged."""
        skipped = self.verdict in {Verdict.SKIPPED, Verdict.INCOMPLETE}
        lacks_gpu = skipped and self.suite == NEEDS_GPU
        return lacks_gpu or self.verdict is Verdict.PASSED

    @property
    def skip_notes(self) -> list[str]:
        """How many checks were skipped for each reason."""
        reasons = Counter(skip.reason for skip in self.skips)
        return [f"{count} skipped: {reason}" for reason, count in reasons.items()]

    @property
    def problem(self) -> str:
        """Why it has not passed, in one line: its first failure, or what was skipped."""
        bad = self.failures or self.timed_out
        if not bad:
            return ", ".join(self.skip_notes) or "nothing was checked"
        counted = ""
        if len(bad) > 1:
            outcome = "failed" if self.failures else "ran out of time"
            counted = f"{len(bad)} of {len(bad) + self.passed} tests {outcome}, first "
        return f"{counted}{bad[0].test}: {bad[0].reason}"

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "verdict": str(self.verdict),
            "passed": self.passed,
            "failed": len(self.failures),
            "seconds": round(self.seconds, 1),
            "failures": [asdict(one) for one in self.failures],
            "timed_out": [asdict(one) for one in self.timed_out],
            "skipped": [asdict(one) for one in self.skips],
            "not_asked": [],  # always empty; older versions of imgbuild read no result without it
            "before": self.before,
            "found": self.found,
        }


_RESULT = TypeAdapter(SuiteResult)


@dataclass(frozen=True)
class Report:
    """The results of all suites in one image, and the digest of the suites' code.

    ``gpus`` says whether the engine offered GPUs. ``not_begun`` are suites that came after the
    first failure, where that ends the run.
    """

    image: str
    image_id: str
    code_digest: str
    suites: tuple[SuiteResult, ...]
    gpus: bool = False
    reference: str = ""
    not_begun: tuple[str, ...] = ()
    #: Wall time from the start of the container to its end; what passed before takes none.
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the image may be tagged."""
        return self.verdict is Verdict.PASSED

    @property
    def verdict(self) -> Verdict:
        """The outcome of all suites; missing GPUs alone leave it whole."""
        each = {suite.verdict for suite in self.suites if not suite.ok}
        if Verdict.FAILED in each or not self.suites:
            return Verdict.FAILED
        if Verdict.TIMED_OUT in each:
            return Verdict.TIMED_OUT
        if not any(suite.passed for suite in self.suites):
            return Verdict.SKIPPED
        return Verdict.INCOMPLETE if each or self.not_begun else Verdict.PASSED

    @property
    def problems(self) -> list[str]:
        """Why it may not be tagged: a sentence per suite, and what to do if only time ran out."""
        lines = [f"{one.suite}: {one.problem}" for one in self.suites if not one.ok]
        return [*lines, *([RUN_AGAIN] if self.verdict is Verdict.TIMED_OUT else [])]

    @property
    def lacks_gpu(self) -> bool:
        """Whether the suite that needs a GPU could make none of its checks."""
        return any(one.suite == NEEDS_GPU and not one.passed for one in self.suites)

    @property
    def notes(self) -> list[str]:
        """What was not tested in the image, and why."""
        notes = [f"{suite.suite}: {note}" for suite in self.suites for note in suite.skip_notes]
        notes += [f"{one.suite}: result found in {one.found}" for one in self.suites if one.found]
        if self.not_begun:
            notes.append(f"not started after the first failure: {', '.join(self.not_begun)}")
        return notes

    def as_json(self) -> dict[str, Any]:
        return {
            "image": self.image,
            "image_id": self.image_id,
            "reference": self.reference,
            "suite_code": self.code_digest,
            "gpus_offered": self.gpus,
            "ok": self.ok,
            "verdict": str(self.verdict),
            "seconds": round(self.seconds, 1),
            "suites": [suite.as_json() for suite in self.suites],
            "not_begun": list(self.not_begun),
            "not_given": [],  # always empty, for programs that read the key
        }


@dataclass(frozen=True)
class RecordedExtension:
    """An image that `imgbuild extend` made here: its base in the matrix, if any, and its suites.

    ``suites`` are the names of those that it had to pass; none if no suite ran. ``expected`` is
    what they were told to expect. A ``cached_base`` was neither made here nor verified.
    """

    family: str
    expected: dict[str, Any]
    suites: tuple[str, ...]
    cached_base: bool = False


_EXTENSION = TypeAdapter(RecordedExtension)


@dataclass(frozen=True)
class ReportStore:
    """The verdicts of suites, a file an image id; a damaged one counts as none.

    A verdict counts for one image id and one key of
    :func:`~imgbuild.suites.catalog.suite_keys`. Removing the folder only makes suites run again.
    """

    folder: Path

    def save(
        self,
        image_id: str,
        keys: Mapping[str, str],
        results: Iterable[SuiteResult],
        *,
        gpus: str | None = None,
    ) -> None:
        """Keep the results; ``gpus`` is the `gpu_fingerprint` of that moment."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        more = {"gpus": gpus, "before": now}
        fresh = {one.suite: {**one.as_json(), "key": keys[one.suite], **more} for one in results}
        self._write(image_id, {**self.document(image_id), **fresh})

    def passed(
        self, image_id: str, keys: Mapping[str, str], *, gpus: str | None = None
    ) -> dict[str, SuiteResult]:
        """Return the results, by suite, that are still good.

        ``gpus`` is the `gpu_fingerprint` of now: where the engine offers GPUs, a suite that lacked
        one is run again, unless driver and GPUs are known to be the same.
        """
        known = self._known(image_id, keys)
        lacking = known.get(NEEDS_GPU, {})
        if gpus is not None and lacking.get("skipped") and gpus != (lacking.get("gpus") or None):
            known.pop(NEEDS_GPU)
        results = {suite: _result(suite, entry) for suite, entry in known.items()}
        return {suite: result for suite, result in results.items() if result and result.ok}

    def verdict(
        self, image_id: str, keys: Mapping[str, str], *, gpus: str | None = None
    ) -> Verdict:
        """Return whether an image passed or failed exactly these suites, as far as known."""
        known = self._known(image_id, keys)
        if any(entry.get("verdict") == Verdict.FAILED for entry in known.values()):
            return Verdict.FAILED
        whole = self.passed(image_id, keys, gpus=gpus).keys() == keys.keys()
        return Verdict.PASSED if keys and whole else Verdict.UNKNOWN

    def was_to_test(self, image_id: str) -> bool:
        """Return whether this machine was to test the image, even if its file is damaged."""
        return self._path(image_id).is_file()

    def document(self, image_id: str) -> dict[str, Any]:
        """Return the entries of an image, by suite.

        Earlier versions also kept results of a repository that nobody had signed. These are left
        out, so their suites run again.
        """
        suites = self._read(image_id).get("suites")
        if not isinstance(suites, dict):
            return {}
        return {suite: entry for suite, entry in suites.items() if not _is_unsigned(entry)}

    def import_results(  # noqa: PLR0913 - what was found, and of whom
        self,
        image_id: str,
        suites: Mapping[str, Any],
        found: str = "",
        *,
        built: bool = False,
        seconds: float = 0.0,
        signed_by: str = "",
    ) -> None:
        """Keep results of the image's signed provenance; those of this machine win.

        ``found`` is the repository, ``signed_by`` the fingerprint of who signed the image with its
        results. Incomplete results are left out, and so is what an entry itself says about its
        signer. Without any it is kept that this machine is to test the image, and if so, ``built``
        it, with how much work.
        """
        signature = {"signed_by": signed_by} if signed_by else {}
        theirs = {}
        for suite, entry in suites.items():
            if isinstance(entry, Mapping) and _result(suite, {**entry, "found": found}):
                said = {name: value for name, value in entry.items() if name != "signed_by"}
                theirs[suite] = {**said, "found": found, **signature}
        made = {"built": True, "seconds": seconds} if built else {}
        self._write(image_id, {**theirs, **self.document(image_id)}, **made, **signature)

    def was_built_here(self, image_id: str) -> bool:
        """Return whether this machine is known to have built the image: labels can be forged."""
        return self._read(image_id).get("built") is True

    def record_pull(self, image_id: str, repository: str, verified_by: str = "") -> None:
        """Keep that the image came from a repository that the user named.

        ``verified_by`` is the fingerprint of whose signature on it was verified.
        """
        made = {"pulled": repository, "verified_by": verified_by}
        self._write(image_id, self.document(image_id), **made)

    def record_extension(
        self,
        image_id: str,
        family: str = "",
        report: Report | None = None,
        expected: Mapping[str, Any] | None = None,
        *,
        cached_base: bool = False,
    ) -> None:
        """Keep that `imgbuild extend` made the image here; it is none of the matrix.

        ``family`` is the name of the image of the matrix that it is based on, if any. ``report`` is
        that of the suites, if they ran, with what they were told to expect. The image that they
        tested has the same files, and may have another user. ``cached_base`` is as in
        `RecordedExtension`.
        """
        suites = self.document(image_id)
        if report:
            suites |= self.document(report.image_id)
        names = [one.suite for one in report.suites] if report else []
        extension: dict[str, Any] = {"family": family, "expected": {**(expected or {})}}
        extension |= {"suites": names, "cached_base": cached_base}
        self._write(image_id, suites, extended=True, extension=extension)

    def extension(self, image_id: str) -> "RecordedExtension | None":
        """Return what `record_extension` kept of an image; None if that is nothing."""
        try:
            return _EXTENSION.validate_python(self._read(image_id).get("extension"))
        except ValueError:
            return None

    def is_own(self, image_id: str) -> bool:
        """Return whether this machine built the image, or pulled it from a named repository."""
        return self.was_built_here(image_id) or bool(self._read(image_id).get("pulled"))

    def require_own(self, image_id: str, image: Image) -> None:
        """Raise InputError unless the image of the engine is an own one."""
        if not self.is_own(image_id):
            raise InputError(
                f"There is no record that this machine built {image.tags[0]} ({image_id}), or "
                "pulled it from a repository that you named; anybody can write its labels. Build "
                f"it first (`imgbuild build --name {image.name}`), or name the image yourself: "
                "`imgbuild extend --base`; other commands have --image."
            )

    def was_made_here(self, image_id: str) -> bool:
        """Return whether this machine built the image, or extended another one to it."""
        return self.was_built_here(image_id) or self._read(image_id).get("extended") is True

    def verified_by(self, image_id: str) -> object:
        """Return the fingerprint of whose signature was verified when the image was pulled."""
        return self._read(image_id).get("verified_by")

    def signed_by(self, image_id: str) -> object:
        """Return the fingerprint of who signed the image, with results that were taken, if any."""
        return self._read(image_id).get("signed_by")

    def work_seconds(self, image_id: str) -> float:
        """Return the sum of the times of the steps that built the image here; 0 if unknown."""
        seconds = self._read(image_id).get("seconds")
        return seconds if isinstance(seconds, float) and 0 <= seconds < _LONGEST else 0.0

    def _known(self, image_id: str, keys: Mapping[str, str]) -> dict[str, Entry]:
        return {
            suite: entry
            for suite, entry in self.document(image_id).items()
            if isinstance(entry, dict) and suite in keys and entry.get("key") == keys[suite]
        }

    def _read(self, image_id: str) -> dict[str, Any]:
        try:
            document = parse_json(self._path(image_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self, image_id: str, suites: Mapping[str, Any], **made: object) -> None:
        document = {**self._read(image_id), "image_id": image_id, **made, "suites": suites}
        write_text(self._path(image_id), json.dumps(document, indent=2) + "\n")

    def _path(self, image_id: str) -> Path:
        return self.folder / f"{image_id.removeprefix('sha256:')}.json"


def _is_unsigned(entry: object) -> bool:
    """Return whether an entry was found in a repository, without a signature."""
    if not isinstance(entry, Mapping):
        return False
    return entry.get("found") is not None and not entry.get("signed_by")


def _result(suite: str, entry: Entry) -> SuiteResult | None:
    """Return an entry as a result; ``None`` if it is damaged."""
    try:
        found = _RESULT.validate_python({**entry, "suite": suite, "skips": entry["skipped"]})
    except (KeyError, ValueError):
        return None
    return found if found.before and 0 <= found.seconds < _LONGEST else None
