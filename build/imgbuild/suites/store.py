"""Store suite results and the origin of images on this machine, by image id."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from imgbuild.core.errors import InputError
from imgbuild.core.files import parse_json, write_text
from imgbuild.core.outcome import Outcome
from imgbuild.matrix.images import Image
from imgbuild.suites.results import LONGEST, NEEDS_GPU, Report, SuiteResult, read_results


@dataclass(frozen=True)
class RecordedExtension:
    """The record of an image that `imgbuild extend` made on this machine.

    - ``family``: the name of its base image in the matrix, or empty
    - ``expected``: the facts that the suites expected
    - ``suites``: names of the suites that it had to pass; empty if no suite ran
    - ``cached_base``: whether its base was neither made on this machine nor verified
    """

    family: str
    expected: dict[str, Any]
    suites: tuple[str, ...]
    cached_base: bool = False


_EXTENSION = TypeAdapter(RecordedExtension)


@dataclass(frozen=True)
class ReportStore:
    """A folder of suite results with one file per image id; a damaged file counts as missing.

    A verdict is valid for one image id and one key of
    :func:`~imgbuild.suites.catalog.suite_keys`. Without the folder, suites run again, and images
    count as unknown.
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
        """Store results; ``gpus`` is the `gpu_fingerprint` of the run."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        stored = self.results(image_id)
        for result in results:
            kept = {"key": keys[result.suite], "gpus": gpus, "before": now, "found": None}
            stored[result.suite] = result.model_copy(update=kept)
        self._write(image_id, stored)

    def passed(
        self, image_id: str, keys: Mapping[str, str], *, gpus: str | None = None
    ) -> dict[str, SuiteResult]:
        """Return the results that are still valid, by suite.

        ``gpus`` is the current `gpu_fingerprint`. If the engine offers GPUs, a suite that lacked
        one runs again, unless driver and GPUs are known to be the same.
        """
        results = self._current(image_id, keys)
        lacking = results.get(NEEDS_GPU)
        if gpus is not None and lacking and lacking.skipped:
            is_same = gpus == (lacking.gpus or None)
            if not is_same:
                del results[NEEDS_GPU]
        return {suite: result for suite, result in results.items() if result.ok}

    def verdict(
        self, image_id: str, keys: Mapping[str, str], *, gpus: str | None = None
    ) -> Outcome:
        """Return whether an image passed or failed exactly these suites, or UNKNOWN."""
        results = self._current(image_id, keys)
        if any(result.verdict == Outcome.FAILED for result in results.values()):
            return Outcome.FAILED
        passed = self.passed(image_id, keys, gpus=gpus)
        if keys and passed.keys() == keys.keys():
            return Outcome.PASSED
        return Outcome.UNKNOWN

    def was_to_test(self, image_id: str) -> bool:
        """Return whether there is a file for the image, even a damaged one."""
        return self._path(image_id).is_file()

    def results(self, image_id: str) -> dict[str, SuiteResult]:
        """Return the results of an image, by suite.

        Earlier versions also stored unsigned results from a repository. These are skipped, so their
        suites run again.
        """
        entries = self._read(image_id).get("suites")
        if not isinstance(entries, dict):
            return {}
        results = read_results(entries)
        for suite, result in [*results.items()]:
            if result.found is not None and not result.signed_by:
                del results[suite]
        return results

    def import_results(  # noqa: PLR0913 - results and their origin
        self,
        image_id: str,
        results: Mapping[str, SuiteResult],
        found: str = "",
        *,
        built: bool = False,
        seconds: float = 0.0,
        signed_by: str = "",
    ) -> None:
        """Store results from the image's signed provenance; this machine's own results win.

        ``found`` is the repository, and ``signed_by`` the fingerprint of the signer; they replace
        these fields of the results. Results without a time are skipped.

        Call it without results to record that this machine has to test the image. With ``built``,
        it also records that this machine built the image with ``seconds`` of work.
        """
        origin = {"found": found, "signed_by": signed_by}
        kept = {}
        for suite, result in results.items():
            if result.before:
                kept[suite] = result.model_copy(update=origin)
        kept |= self.results(image_id)
        made: dict[str, object] = {}
        if built:
            made = {"built": True, "seconds": seconds}
        if signed_by:
            made["signed_by"] = signed_by
        self._write(image_id, kept, **made)

    def was_built_here(self, image_id: str) -> bool:
        """Return whether this machine recorded that it built the image; labels can be forged."""
        return self._read(image_id).get("built") is True

    def record_pull(self, image_id: str, repository: str, verified_by: str = "") -> None:
        """Record that the image came from a repository that the user named.

        ``verified_by`` is the fingerprint of the signer if the image's signature was verified.
        """
        made = {"pulled": repository, "verified_by": verified_by}
        self._write(image_id, self.results(image_id), **made)

    def record_extension(
        self,
        image_id: str,
        family: str = "",
        report: Report | None = None,
        expected: Mapping[str, Any] | None = None,
        *,
        cached_base: bool = False,
    ) -> None:
        """Record that `imgbuild extend` made the image on this machine.

        ``report`` has the results of the suites if they ran, and ``expected`` the facts that they
        expected. The tested image has the same files, but may have another user. The other fields
        are those of `RecordedExtension`.
        """
        results = self.results(image_id)
        names: list[str] = []
        if report:
            results |= self.results(report.image_id)
            names = [suite.suite for suite in report.suites]
        extension = {
            "family": family,
            "expected": {**(expected or {})},
            "suites": names,
            "cached_base": cached_base,
        }
        self._write(image_id, results, extended=True, extension=extension)

    def extension(self, image_id: str) -> "RecordedExtension | None":
        """Return the record of `record_extension`; None if it is missing or damaged."""
        recorded = self._read(image_id).get("extension")
        try:
            return _EXTENSION.validate_python(recorded)
        except ValueError:
            return None

    def is_own(self, image_id: str) -> bool:
        """Return whether this machine built the image, or pulled it from a named repository."""
        return self.was_built_here(image_id) or bool(self._read(image_id).get("pulled"))

    def require_own(self, image_id: str, image: Image) -> None:
        """Raise InputError unless this machine built the image or pulled it."""
        if not self.is_own(image_id):
            raise InputError(
                f"There is no record that this machine built {image.tags[0]} ({image_id}) or "
                "pulled it from a repository that you named. Its labels prove nothing, because "
                f"anybody can write them. Build it first (`imgbuild build {image.name}`), or name "
                "the image itself by this id."
            )

    def was_made_here(self, image_id: str) -> bool:
        """Return whether this machine built the image, or made it with `imgbuild extend`."""
        return self.was_built_here(image_id) or self._read(image_id).get("extended") is True

    def verified_by(self, image_id: str) -> object:
        """Return the fingerprint of the signer if the signature was verified at the pull."""
        return self._read(image_id).get("verified_by")

    def signed_by(self, image_id: str) -> object:
        """Return the fingerprint of the signer of imported results, if any."""
        return self._read(image_id).get("signed_by")

    def work_seconds(self, image_id: str) -> float:
        """Return the sum of the times of the image's build steps, in seconds; 0 if unknown."""
        seconds = self._read(image_id).get("seconds")
        if isinstance(seconds, float) and 0 <= seconds < LONGEST:
            return seconds
        return 0.0

    def _current(self, image_id: str, keys: Mapping[str, str]) -> dict[str, SuiteResult]:
        """Return the stored results that match the keys."""
        current = self.results(image_id)
        for suite, result in [*current.items()]:
            if not result.before or result.key != keys.get(suite):
                del current[suite]
        return current

    def _read(self, image_id: str) -> dict[str, Any]:
        try:
            document = parse_json(self._path(image_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self, image_id: str, results: Mapping[str, SuiteResult], **made: object) -> None:
        suites = {suite: result.as_json() for suite, result in results.items()}
        document = {**self._read(image_id), "image_id": image_id, **made, "suites": suites}
        text = json.dumps(document, indent=2)
        write_text(self._path(image_id), f"{text}\n")

    def _path(self, image_id: str) -> Path:
        name = image_id.removeprefix("sha256:")
        return self.folder / f"{name}.json"
