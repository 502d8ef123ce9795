"""The files of a test run: JUnit XML and JSON for programs, Markdown for people.

One folder an image, and beside them the same three files for all images of the run.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from imgbuild.files import write_text
from imgbuild.suites.junit import join_junit
from imgbuild.suites.report import Report
from imgbuild.suites.summary import summary

JUNIT, REPORT, SUMMARY = "junit.xml", "report.json", "summary.md"


def write_report(report: Report, folder: Path) -> None:
    """Write one image's files; its ``junit.xml`` is what pytest wrote, where it was run."""
    junit = folder / JUNIT
    write_text(junit, join_junit([(report, junit)]))
    write_text(folder / REPORT, json.dumps(report.as_json(), indent=2) + "\n")
    write_text(folder / SUMMARY, summary([report]))


def write_run(
    reports: Sequence[tuple[Report, Path]], errors: Mapping[str, str], folder: Path
) -> None:
    """Write the files of a whole run, from each image's report and folder.

    ``errors`` tell, by image, why one could not be tested.
    """
    found = [report for report, _ in reports]
    write_text(folder / JUNIT, join_junit([(report, place / JUNIT) for report, place in reports]))
    write_text(folder / REPORT, json.dumps([report.as_json() for report in found], indent=2) + "\n")
    write_text(folder / SUMMARY, summary(found, errors))
