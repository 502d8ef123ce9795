"""The results of the suites in one image."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    field_serializer,
)

from imgbuild.core.outcome import Outcome

#: The suite that is skipped without a GPU, and partly skipped with one GPU. The image is tagged
#: anyway.
NEEDS_GPU = "gpu_runs"
#: Maximum length of a failure's reason in one line, in characters; reports have the whole message.
REASON_LENGTH = 200
_ASSERTED = "AssertionError: "
#: Begins a part of a message with the output of a command (tests/image/container.py).
_OUTPUT = "--- "
#: Begins the part with the command itself; its arguments do not explain a failure.
_COMMAND = "--- command"
#: Advice if checks timed out and none failed.
RUN_AGAIN = (
    "No check failed, but some ran out of time, probably because the machine is busy. Run the same "
    "command again: it runs only the suites that did not pass"
)
#: A name, a version or a reason, in one line.
Word = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
#: Upper limit for the seconds of a suite, to reject damaged results.
LONGEST = 86_400.0
#: Begins the name of each suite in a provenance.
_BYPRODUCT = "suite "
#: The verdicts with which an image may be tagged or published.
_GOOD = (Outcome.PASSED, Outcome.INCOMPLETE, Outcome.SKIPPED)


def shorten(text: str, length: int) -> str:
    """Return the text in one line of at most ``length`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


class Check(BaseModel):
    """A check that did not pass. ``message`` is pytest's message or the reason for skipping."""

    model_config = ConfigDict(frozen=True)

    test: str
    #: In JSON, skipped checks call this field ``reason``.
    message: Annotated[str, Field(validation_alias=AliasChoices("message", "reason"))]

    @property
    def reason(self) -> str:
        """The message in one line: the first line, then the last line with an error.

        In a traceback, pytest marks the lines of the message with ``E``. The values of the
        assertion follow.
        """
        lines = self.message.splitlines()
        lines = [line[1:].strip() for line in lines if line.startswith("E ")] or lines
        if lines and lines[0].startswith(_ASSERTED):
            message = takewhile(lambda line: not line.startswith("assert "), lines)
            lines = [line.removeprefix(_ASSERTED) for line in message]
        lines = [*takewhile(lambda line: line != _COMMAND, lines)]
        first = "".join(lines[:1])
        errors = [line for line in lines if "error" in line.lower()]
        if errors and errors[-1] not in first:
            lines = [shorten(first, REASON_LENGTH // 2), "…", errors[-1]]
        lines = [*takewhile(lambda line: not line.startswith(_OUTPUT), lines)]
        return shorten(" ".join(lines), REASON_LENGTH)


class SuiteResult(BaseModel):
    """The result of one suite in one image, for reports, the store, records and attestations.

    ``verdict`` is an `Outcome`, or a word of another imgbuild version. ``passed`` is a number; the
    other checks are listed. The messages of ``timed_out`` checks say what they waited for.
    ``seconds`` is the time of all checks.

    Only a stored result has these fields:

    - ``before``: the time of the run (ISO 8601)
    - ``key``: the key from :func:`~imgbuild.suites.catalog.suite_keys`
    - ``gpus``: the `gpu_fingerprint` at the time of the run
    - ``found``: the repository with the signed provenance that contains the result
    - ``signed_by``: the fingerprint of the provenance's signer
    """

    model_config = ConfigDict(frozen=True)

    suite: Word
    verdict: Word
    passed: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
    seconds: Annotated[float, Field(strict=True, ge=0, lt=LONGEST)]
    failures: tuple[Check, ...]
    #: Missing in results from earlier versions.
    timed_out: tuple[Check, ...] = ()
    skipped: tuple[Check, ...]
    before: Word | None = None
    found: str | None = None
    key: Word = ""
    gpus: Word | None = None
    signed_by: Word = ""

    @field_serializer("skipped")
    def _skipped_json(self, checks: tuple[Check, ...]) -> list[dict[str, str]]:
        return [{"test": check.test, "reason": check.message} for check in checks]

    @field_serializer("seconds")
    def _seconds_json(self, seconds: float) -> float:
        return round(seconds, 1)

    @property
    def outcome(self) -> Outcome:
        """The verdict that follows from the checks; a suite without checks has failed."""
        if self.timed_out and not self.failures:
            return Outcome.TIMED_OUT
        if self.failures or not (self.passed or self.skipped):
            return Outcome.FAILED
        if self.skipped:
            return Outcome.INCOMPLETE if self.passed else Outcome.SKIPPED
        return Outcome.PASSED

    @property
    def word(self) -> str:
        """The verdict in a table; failures are in capitals to stand out in a long line."""
        loud = self.verdict in {Outcome.FAILED, Outcome.TIMED_OUT}
        return self.verdict.upper() if loud else self.verdict

    @property
    def ok(self) -> bool:
        """Whether the image may be tagged with this result."""
        skipped = self.verdict in {Outcome.SKIPPED, Outcome.INCOMPLETE}
        lacks_gpu = skipped and self.suite == NEEDS_GPU
        return lacks_gpu or self.verdict == Outcome.PASSED

    @property
    def origin(self) -> str | None:
        """The repository that the result came from; None if the suite ran on this machine."""
        if "found" not in self.model_fields_set:
            return "a report that does not say where"
        return self.found

    @property
    def skip_reasons(self) -> tuple[str, ...]:
        """The reasons for skipped checks, without duplicates."""
        return tuple(dict.fromkeys(check.message for check in self.skipped))

    @property
    def skip_notes(self) -> list[str]:
        """The number of skipped checks for each reason."""
        reasons = Counter(check.message for check in self.skipped)
        return [f"{count} skipped: {reason}" for reason, count in reasons.items()]

    @property
    def problem(self) -> str:
        """The reason why the suite has not passed, in one line: its first failure or its skips."""
        bad = self.failures or self.timed_out
        if not bad:
            return ", ".join(self.skip_notes) or "nothing was checked"
        counted = ""
        if len(bad) > 1:
            outcome = "failed" if self.failures else "ran out of time"
            counted = f"{len(bad)} of {len(bad) + self.passed} tests {outcome}, first "
        return f"{counted}{bad[0].test}: {bad[0].reason}"

    def as_json(self, *, stored: bool = True) -> dict[str, Any]:
        """Return the JSON for the store, records and attestations; a report has fewer fields."""
        left_out = {"key", "gpus", "signed_by"}
        if stored:
            # Writing a result of unknown origin again must not add an origin.
            optional = {"found": "found" in self.model_fields_set, "signed_by": self.signed_by}
            left_out = {name for name, is_known in optional.items() if not is_known}
        document = self.model_dump(mode="json", exclude=left_out)
        # Older imgbuild versions require the list, which is always empty.
        return {**document, "failed": len(self.failures), "not_asked": []}


def suite_result(  # noqa: PLR0913 - how the checks ended
    suite: str,
    *,
    passed: int = 0,
    failures: Iterable[Check] = (),
    timed_out: Iterable[Check] = (),
    skipped: Iterable[Check] = (),
    seconds: float = 0.0,
) -> SuiteResult:
    """Create the result of a suite run; its verdict follows from the checks."""
    result = SuiteResult(
        suite=suite,
        verdict="",
        passed=passed,
        failures=tuple(failures),
        timed_out=tuple(timed_out),
        skipped=tuple(skipped),
        seconds=seconds,
    )
    return result.model_copy(update={"verdict": result.outcome})


def read_results(entries: Mapping[str, Any]) -> dict[str, SuiteResult]:
    """Parse results that this or an earlier version wrote; return them by suite.

    Skip damaged results, and results with a good verdict that contradicts their checks.
    """
    results = {}
    for suite, entry in entries.items():
        with suppress(ValueError, TypeError):
            result = SuiteResult.model_validate({**entry, "suite": suite})
            if result.verdict not in _GOOD or result.verdict == result.outcome:
                results[suite] = result
    return results


def suite_byproducts(
    results: Mapping[str, SuiteResult], codes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the provenance's entries for suites: their results and the sha256 of their code."""
    byproducts = []
    for suite, result in sorted(results.items()):
        code = codes[suite].removeprefix("sha256:")
        byproduct = {
            "name": f"{_BYPRODUCT}{suite}",
            "digest": {"sha256": code},
            "annotations": result.as_json(),
        }
        byproducts.append(byproduct)
    return byproducts


def attested_suites(predicates: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON of results in provenances, by suite; `read_results` parses it."""
    entries = {}
    for predicate in predicates:
        details = predicate.get("runDetails")
        byproducts = details.get("byproducts") if isinstance(details, Mapping) else None
        for byproduct in byproducts if isinstance(byproducts, list) else ():
            name = str(byproduct.get("name")) if isinstance(byproduct, Mapping) else ""
            if name.startswith(_BYPRODUCT):
                entries[name.removeprefix(_BYPRODUCT)] = byproduct.get("annotations")
    return entries


@dataclass(frozen=True)
class Report:
    """The results of all suites in one image, and the digest of the suites' code.

    ``gpus`` says whether the engine offered GPUs. ``not_begun`` are suites that did not start
    because an earlier failure ended the run.
    """

    image: str
    image_id: str
    code_digest: str
    suites: tuple[SuiteResult, ...]
    gpus: bool = False
    reference: str = ""
    not_begun: tuple[str, ...] = ()
    #: Elapsed time of the container; zero if all suites passed before.
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the image may be tagged."""
        return self.verdict is Outcome.PASSED

    @property
    def verdict(self) -> Outcome:
        """The outcome of all suites; it may be PASSED although GPUs are missing."""
        verdicts = {suite.verdict for suite in self.suites if not suite.ok}
        if Outcome.FAILED in verdicts or not self.suites:
            return Outcome.FAILED
        if Outcome.TIMED_OUT in verdicts:
            return Outcome.TIMED_OUT
        if not any(suite.passed for suite in self.suites):
            return Outcome.SKIPPED
        return Outcome.INCOMPLETE if verdicts or self.not_begun else Outcome.PASSED

    @property
    def problems(self) -> list[str]:
        """The reasons against tagging, one line per suite, and advice after a timeout."""
        lines = [f"{suite.suite}: {suite.problem}" for suite in self.suites if not suite.ok]
        if self.verdict is Outcome.TIMED_OUT:
            lines.append(RUN_AGAIN)
        return lines

    @property
    def lacks_gpu(self) -> bool:
        """Whether no check of the suite that needs a GPU passed."""
        return any(suite.suite == NEEDS_GPU and not suite.passed for suite in self.suites)

    @property
    def notes(self) -> list[str]:
        """The parts of the image that were not tested, and why."""
        notes = []
        for result in self.suites:
            notes += [f"{result.suite}: {note}" for note in result.skip_notes]
        for result in self.suites:
            if result.found:
                notes.append(f"{result.suite}: result found in {result.found}")
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
            "suites": [suite.as_json(stored=False) for suite in self.suites],
            "not_begun": list(self.not_begun),
            "not_given": [],  # always empty, for programs that read the key
        }
