"""pytest's JUnit XML: as suite results, and as one file for all images of a run."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from imgbuild.suites.code import PREFIX
from imgbuild.suites.report import Report, SuiteResult, TestFailure, TestSkip

#: testinfra's parameter, which is between or beside those of the checks.
_CONTAINER = re.compile(r"-?docker://[0-9a-f]+")
#: How the suites' reasons begin where nobody said what to expect (tests/image/skipping.py).
NOT_ASKED = "not asked: "


def read_junit(
    path: Path, suites: tuple[str, ...], *, whole: bool = True
) -> tuple[SuiteResult, ...]:
    """Return one result a suite; a suite without any test in the file has passed nothing.

    Where the run ended with the first failure (not ``whole``), such a suite was not begun, and has
    no result.
    """
    cases: dict[str, list[ET.Element]] = {suite: [] for suite in suites}
    # The file was written by the pytest that this program started.
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314
        cases.setdefault(_suite_of(case), []).append(case)
    return tuple(_result(suite, found) for suite, found in cases.items() if found or whole)


def check_name(name: str) -> str:
    """Return a check's name without the container, which is gone when somebody reads it."""
    return _CONTAINER.sub("", name).replace("[-", "[").replace("[]", "")


def join_junit(reports: Iterable[tuple[Report, Path]]) -> str:
    """Return one document of the reports, each with the file that pytest wrote for it.

    The checks are named by image, suite and check. A suite that was not run again has no checks
    in it; a property says when it passed.
    """
    root = ET.Element("testsuites", name="imgbuild test")
    for report, file in reports:
        for suite in report.suites:
            root.append(_found_before(report, suite) if suite.before else _suite(report, suite))
        fresh = {suite.suite: suite for suite in report.suites if not suite.before}
        if fresh and file.exists():
            _add_cases(root, report, file)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(report: Report, suite: SuiteResult) -> ET.Element:
    skipped = len(suite.skips) + len(suite.not_asked)
    return ET.Element(
        "testsuite",
        name=f"{report.image} {suite.suite}",
        tests=str(suite.passed + len(suite.failures) + skipped),
        failures=str(len(suite.failures)),
        errors="0",
        skipped=str(skipped),
        time=f"{suite.seconds:.3f}",
    )


def _found_before(report: Report, suite: SuiteResult) -> ET.Element:
    name = f"{report.image} {suite.suite}"
    element = ET.Element("testsuite", name=name, tests="0", failures="0", errors="0", skipped="0")
    properties = ET.SubElement(element, "properties")
    ET.SubElement(properties, "property", name=f"{suite.found}_before", value=suite.before or "")
    ET.SubElement(properties, "property", name="checks", value=str(suite.passed))
    return element


def _add_cases(root: ET.Element, report: Report, file: Path) -> None:
    """Put the checks that pytest wrote down under their suites."""
    suites = {element.get("name"): element for element in root}
    for case in ET.parse(file).getroot().iter("testcase"):  # noqa: S314  # as above
        suite = suites.get(f"{report.image} {_suite_of(case)}")
        if suite is not None:
            case.set("name", _name(case))
            case.set("classname", f"{report.image}.{PREFIX}{_suite_of(case)}")
            suite.append(case)


def _suite_of(case: ET.Element) -> str:
    """Return ``horovod`` for the class name ``tests.image.test_horovod``."""
    module = (case.get("classname") or case.get("name") or "").split(".")
    named = [part for part in module if part.startswith(PREFIX)]
    return (named or ["unknown"])[0].removeprefix(PREFIX)


def _result(suite: str, cases: list[ET.Element]) -> SuiteResult:
    failures = tuple(failure for case in cases for failure in _failures(case))
    left_out = [skip for case in cases for skip in _skips(case)]
    passed = sum(1 for case in cases if not {e.tag for e in case} & {"failure", "error", "skipped"})
    return SuiteResult(
        suite,
        passed,
        failures,
        tuple(skip for skip in left_out if not skip.reason.startswith(NOT_ASKED)),
        sum(float(case.get("time") or 0) for case in cases),
        tuple(skip for skip in left_out if skip.reason.startswith(NOT_ASKED)),
    )


def _failures(case: ET.Element) -> list[TestFailure]:
    found = [*case.iter("failure"), *case.iter("error")]
    return [TestFailure(_name(case), f.text or f.get("message") or "") for f in found]


def _skips(case: ET.Element) -> list[TestSkip]:
    return [TestSkip(_name(case), s.get("message") or "no reason") for s in case.iter("skipped")]


def _name(case: ET.Element) -> str:
    return check_name(case.get("name") or "?")
