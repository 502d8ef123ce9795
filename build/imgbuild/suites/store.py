"""Keep the results of suites on this machine: one file an image id, one entry a suite.

A verdict counts for one image id and one key (`suite_keys`): the suite's code, the code that all
suites share, and the expectation. Removing the folder only makes suites run again.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.files import write_text
from imgbuild.suites.results import NEEDS_GPU, SuiteResult, TestSkip, Verdict

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class ReportStore:
    """The suites' verdicts. A damaged file counts as none."""

    folder: Path

    def save(
        self,
        image_id: str,
        keys: Mapping[str, str],
        results: Iterable[SuiteResult],
        *,
        gpus: bool = False,
    ) -> None:
        """Keep the results; ``gpus`` says whether the engine offered GPUs."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        fresh = {
            result.suite: {
                **result.as_json(),
                "key": keys[result.suite],
                "gpus_offered": gpus,
                "before": now,
            }
            for result in results
        }
        self._write(image_id, {**self.document(image_id), **fresh})

    def passed(
        self, image_id: str, keys: Mapping[str, str], *, gpus: bool = False
    ) -> dict[str, SuiteResult]:
        """Return the results, by suite, that are still good.

        ``gpus`` says whether the engine offers GPUs now: a suite that was skipped for want of them
        is run again then.
        """
        known = self._known(image_id, keys)
        results = {suite: _result(suite, entry) for suite, entry in known.items()}
        return {
            suite: result
            for suite, result in results.items()
            if result
            and result.ok
            # Skipped for want of GPUs that there are now.
            and not (gpus and suite == NEEDS_GPU and not known[suite].get("gpus_offered"))
        }

    def verdict(self, image_id: str, keys: Mapping[str, str], *, gpus: bool = False) -> Verdict:
        """Return whether an image passed or failed exactly these suites, as far as known."""
        known = self._known(image_id, keys)
        if any(entry.get("verdict") == Verdict.FAILED for entry in known.values()):
            return Verdict.FAILED
        whole = self.passed(image_id, keys, gpus=gpus).keys() == keys.keys()
        return Verdict.PASSED if keys and whole else Verdict.UNKNOWN

    def begin(self, image_id: str) -> None:
        """Keep that this machine is to test the image, before there is any result."""
        if not self.knows(image_id):
            self.adopt(image_id, {})

    def knows(self, image_id: str) -> bool:
        """Return whether this machine was to test the image, even if its file is damaged."""
        return self._path(image_id).is_file()

    def document(self, image_id: str) -> dict[str, Any]:
        """Return all entries of an image, by suite."""
        try:
            document = json.loads(self._path(image_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        suites = document.get("suites") if isinstance(document, dict) else None
        return suites if isinstance(suites, dict) else {}

    def adopt(self, image_id: str, suites: Mapping[str, Any]) -> None:
        """Take over results of the same image from elsewhere; those of this machine win."""
        self._write(image_id, {**suites, **self.document(image_id)})

    def _known(self, image_id: str, keys: Mapping[str, str]) -> dict[str, Entry]:
        entries = self.document(image_id)
        return {
            suite: entry
            for suite, entry in entries.items()
            if isinstance(entry, dict) and suite in keys and entry.get("key") == keys[suite]
        }

    def _write(self, image_id: str, suites: Mapping[str, Any]) -> None:
        document = {"image_id": image_id, "suites": suites}
        write_text(self._path(image_id), json.dumps(document, indent=2) + "\n")

    def _path(self, image_id: str) -> Path:
        return self.folder / f"{image_id.removeprefix('sha256:')}.json"


def _result(suite: str, entry: Entry) -> SuiteResult | None:
    """Return an entry as a result; ``None`` if it is damaged."""
    try:
        skips, not_asked = (
            tuple(TestSkip(str(one["test"]), str(one["reason"])) for one in entry[name])
            for name in ("skipped", "not_asked")
        )
        passed, seconds, when = entry["passed"], entry["seconds"], entry["before"]
        if entry["failures"] != [] or not isinstance(passed, int) or not isinstance(when, str):
            return None
        return SuiteResult(suite, passed, (), skips, float(seconds), not_asked, when)
    except (KeyError, TypeError, ValueError):
        return None
