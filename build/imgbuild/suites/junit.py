"""pytest's JUnit XML as suite results."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from imgbuild.suites.code import PREFIX
from imgbuild.suites.report import SuiteResult, TestFailure, TestSkip

#: testinfra's parameter, which is between or beside those of the checks.
_CONTAINER = re.compile(r"-?docker://[0-9a-f]+")


def read_junit(path: Path, suites: tuple[str, ...]) -> tuple[SuiteResult, ...]:
    """Return one result a suite; a suite without any test in the file has passed nothing."""
    cases: dict[str, list[ET.Element]] = {suite: [] for suite in suites}
    # The file was written by the pytest that this program started.
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314
        cases.setdefault(_suite_of(case), []).append(case)
    return tuple(_result(suite, found) for suite, found in cases.items())


def _suite_of(case: ET.Element) -> str:
    """Return ``horovod`` for the class name ``tests.image.test_horovod``."""
    module = (case.get("classname") or case.get("name") or "").split(".")
    named = [part for part in module if part.startswith(PREFIX)]
    return (named or ["unknown"])[0].removeprefix(PREFIX)


def _result(suite: str, cases: list[ET.Element]) -> SuiteResult:
    failures = tuple(failure for case in cases for failure in _failures(case))
    skips = tuple(skip for case in cases for skip in _skips(case))
    passed = sum(1 for case in cases if not {e.tag for e in case} & {"failure", "error", "skipped"})
    return SuiteResult(
        suite, passed, failures, skips, sum(float(case.get("time") or 0) for case in cases)
    )


def _failures(case: ET.Element) -> list[TestFailure]:
    found = [*case.iter("failure"), *case.iter("error")]
    return [TestFailure(_name(case), f.text or f.get("message") or "") for f in found]


def _skips(case: ET.Element) -> list[TestSkip]:
    return [TestSkip(_name(case), s.get("message") or "no reason") for s in case.iter("skipped")]


def _name(case: ET.Element) -> str:
    """Return the check's name without the container, which is gone when somebody reads it."""
    name = _CONTAINER.sub("", case.get("name") or "?")
    return name.replace("[-", "[").replace("[]", "")
