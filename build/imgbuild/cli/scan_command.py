"""``imgbuild scan``: find missing security fixes in images, from archives and advisories."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import info, option, print_result, takes_selection
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, count_text
from imgbuild.matrix.selection import Selection, build_hint

if TYPE_CHECKING:
    from imgbuild.build.context import BuildContext
    from imgbuild.matrix.images import Image
    from imgbuild.net.sites import Sites
    from imgbuild.scan.findings import Scan
    from imgbuild.scan.osv import Known, Package

#: A function that returns the known vulnerabilities of packages, and their source.
Ask = Callable[["tuple[Package, ...]"], "tuple[Known, str]"]
#: Begins the text in place of the source if OSV did not answer.
_NOT_ASKED = "not asked: "


@takes_selection()
def scan(
    selection: Selection,
    osv: Path | None = option(
        "--osv FILE", "Use this ZIP file of OSV's records instead of OSV's service."
    ),
    sarif: Path | None = option(
        "--sarif FILE", "Also write the findings to this file as SARIF, for GitHub."
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Show missing security fixes of images; exit 1 if there are any.

    IMAGE can be any image: from the list, the engine or a registry. The command looks for updates
    in the archive of the image's system, and for known vulnerabilities of its packages in OSV. It
    exits with 3 if OSV does not answer and no other fix is missing. Findings under `accepted` in
    the matrix do not count until their day.

    Example: imgbuild scan 2.2
    """
    from importlib.metadata import version

    from imgbuild.build.context import BuildOptions, open_context
    from imgbuild.core.files import write_text
    from imgbuild.dockerfile.labels import NAMESPACE
    from imgbuild.matrix.images import all_images
    from imgbuild.scan.findings import make_sarif, save_scan
    from imgbuild.suites.container import require_docker_client

    scanned = options.engine_images(checkout, selection)
    # If no scanned image is in the matrix, any image of the matrix provides the build settings.
    images = tuple(planned for _, planned in scanned if planned)
    if not images:
        matrix = options.load_matrix(checkout)
        images = all_images(matrix)[:1]
    require_docker_client()
    sites = options.sites_of(checkout, images[0].matrix)
    scans: list[Scan] = []
    with open_context(checkout, images, BuildOptions(), info) as context:
        ask = _make_ask(osv, sites)
        for reference, planned in scanned:
            info(f"scanning {planned.name if planned else reference}")
            if planned is None:
                options.pull_missing(context.engine, reference, checkout.settings)
            result = _scan_image(reference, planned, ask, context)
            scans.append(result)
            save_scan(result, context.state)
    if sarif:
        document = make_sarif(scans, version(NAMESPACE))
        text = json.dumps(document, indent=1)
        write_text(sarif, f"{text}\n")
    results = [asdict(result) for result in scans]
    print_result(results, _lines(scans), as_json=as_json)
    unasked = _describe_unasked(scans)
    if faulty := [result.image for result in scans if result.open]:
        raise CheckFailedError(
            f"{', '.join(faulty)}: security fixes are missing. Build the images again (imgbuild "
            "build --refresh), or accept findings in matrix.yaml with a reason and a day. "
            f"{unasked}".rstrip()
        )
    if unasked:
        raise MachineError(unasked)


def _describe_unasked(scans: "list[Scan]") -> str:
    """Return a message about images whose vulnerabilities are unknown; empty if there are none."""
    images = [scan.image for scan in scans if scan.vulnerabilities.startswith(_NOT_ASKED)]
    if not images:
        return ""
    return (
        f"OSV did not answer, so {', '.join(images)} may have more problems. Use a mirror of OSV "
        "(--mirror osv=URL, before the command) or a file of its records (--osv FILE)."
    )


def _make_ask(file: Path | None, sites: "Sites") -> Ask:
    from imgbuild.scan import osv

    failed: list[str] = []  # after a failure, do not query OSV again for further images

    def ask(packages: "tuple[Package, ...]") -> "tuple[Known, str]":
        if file:
            return osv.read(packages, file), f"OSV's records in {file.name}"
        try:
            if not failed:
                return osv.ask(packages, sites), "OSV"
        except (CheckFailedError, MachineError) as error:
            failed.append(f"{_NOT_ASKED}{error}")
        return {}, failed[0]

    return ask


def _scan_image(
    reference: str, planned: "Image | None", ask: Ask, context: "BuildContext"
) -> "Scan":
    from imgbuild.dockerfile.labels import NAME
    from imgbuild.matrix.images import all_images, with_other_architectures
    from imgbuild.publish.sbom import make_locked_sbom, read_system
    from imgbuild.scan.findings import Scan, find_unsupported_parts, match_findings
    from imgbuild.scan.osv import list_packages
    from imgbuild.scan.updates import find_updates, read_status

    hint = build_hint(planned)
    stored = context.engine.need(reference, hint)
    name = planned.name if planned else reference
    matrix = context.images[0].matrix
    today = datetime.now(UTC).date()
    label = stored.labels.get(NAME)
    images = with_other_architectures(all_images(matrix))
    family = next((image for image in images if image.name == label), None)
    sbom = make_locked_sbom(name, stored, context.engine, context.project, matrix)
    document = json.loads(sbom)
    status = read_status(name, stored, context.engine)
    system = read_system(document)
    updates = find_updates(name, system, status, context, stored.platform)
    packages = list_packages(document)
    vulnerable, asked = ask(packages)
    return Scan(
        image=name,
        image_id=stored.id,
        day=str(today),
        findings=tuple(match_findings(updates, vulnerable, matrix.accepted, today)),
        vulnerabilities=asked,
        end_of_life=tuple(find_unsupported_parts(family, today)) if family else (),
        other_updates=tuple(update.package for update in updates if not update.security),
    )


def _lines(scans: "list[Scan]") -> Iterator[str]:
    for scan in scans:
        yield f"{scan.image}: {count_text(len(scan.open), 'finding')}"
        if scan.findings:
            rows = [("id", "package", "installed", "fixed in", "")]
            for finding in scan.findings:
                fix = finding.fix or "-"
                row = (finding.id, finding.package, finding.installed, fix, finding.status)
                rows.append(row)
            yield from (f"  {line}" for line in align_rows(rows))
        yield f"  known vulnerabilities: {scan.vulnerabilities}"
        if scan.other_updates:
            yield f"  updates without a security fix: {', '.join(scan.other_updates)}"
        yield from (f"  {text}" for text in scan.end_of_life)
