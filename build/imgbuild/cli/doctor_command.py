"""``imgbuild doctor``: check whether this machine can build images, and suggest fixes."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import flag, info, print_json, select, takes_selection
from imgbuild.core.errors import MachineError
from imgbuild.core.process import find_program
from imgbuild.core.project import Project
from imgbuild.core.text import count_text, printable
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from rich.console import Console

    from imgbuild.doctor.checks import Finding


@takes_selection()
def doctor(
    selection: Selection,
    write: bool = flag(
        "--write",
        "Write the inputs found on this machine to imgbuild.local.yaml, and make base images that "
        "no registry provides.",
    ),
    builder: list[str] | None = options.BUILDER,
    platform: str | None = options.option(
        "--platform PLATFORM", "linux/amd64, linux/arm64, or all. Default: linux/amd64."
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Check whether this machine can build images, and suggest fixes.

    Example: imgbuild doctor --write
    """
    from rich.console import Console

    from imgbuild.build.bases import make_bases
    from imgbuild.doctor.checks import WRITE, Status, check_home
    from imgbuild.doctor.diagnosis import diagnose, write_settings
    from imgbuild.engine.client import open_engine
    from imgbuild.engine.types import AMD64
    from imgbuild.inputs.build_inputs import check_settings

    homeless = [*check_home()]
    images = select(checkout, selection)
    settings = checkout.read_settings() if write else checkout.settings
    if platform or all(image.platform == AMD64 for image in images):
        platform = platform or AMD64
        everything = selection.everything
        images = options.for_platform(images, platform, settings, everything=everything)
    settings = settings.with_builders(tuple(builder or ()))
    check_settings(settings, images[0].matrix)
    findings, choice = diagnose(checkout, images, settings, writing=write)
    again = shlex.join([*_program(), *sys.argv[1:], WRITE])
    findings += homeless
    findings = [replace(row, fix=again) if row.fix == WRITE else row for row in findings]
    lacking = [row.what for row in findings if row.status is Status.MISSING]
    missing = ", ".join(lacking)
    what = images[0].name if len(images) == 1 else count_text(len(images), "image")
    if as_json:
        rows = [_finding_json(row) for row in findings]
        written = choice.model_dump(mode="json", by_alias=True, exclude_none=True)
        names = [image.name for image in images]
        print_json({"able": not missing, "images": names, "findings": rows, "choice": written})
    else:
        show(findings, Console())
    if write:
        changed = write_settings(choice, checkout.settings_file, settings)
        state = "written" if changed else "unchanged"
        info(f"{checkout.settings_file}: {state}.")
        if "engine" not in lacking:
            possible = [image for image in images if f"base {image.base_name}" not in lacking]
            with open_engine(choice.engine) as engine:
                make_bases(possible, choice, engine, info)
    if missing:
        raise MachineError(
            f"{what} cannot be built here yet. Failed checks: {missing}. See the fixes above."
        )
    info(f"{what} can be built here.")


def _finding_json(finding: "Finding") -> dict[str, str | None]:
    status, *_ = finding.status.value
    return {
        "group": finding.group,
        "status": status,
        "what": finding.what,
        "detail": finding.detail,
        "fix": finding.fix,
    }


def _program() -> list[str]:
    """Return the command that runs imgbuild, which works even if imgbuild is not on PATH."""
    if find_program("imgbuild"):
        return ["imgbuild"]
    if Path(sys.argv[0]).name == "__main__.py":
        return [sys.executable, "-m", "imgbuild"]
    return [sys.argv[0]]


def show(findings: "Sequence[Finding]", console: "Console") -> None:
    """Print the findings under their headings, with fixes; do not wrap, so that users can copy."""
    from rich.text import Text

    width = max(len(row.what) for row in findings)
    for group in dict.fromkeys(row.group for row in findings):
        console.print(Text(group, style="bold"))
        for row in findings:
            if row.group != group:
                continue
            _, sign, style = row.status.value
            line = Text(f"  {sign} ", style=style).append(
                f"{row.what:<{width}}  {printable(row.detail)}", style="default"
            )
            console.print(line, soft_wrap=True)
            for fix in row.fix.split("\n") if row.fix else ():
                console.print(Text(f"{'':<{width + 6}}-> {printable(fix)}"), soft_wrap=True)
