"""Run all checks at once, and decide where builds on this machine take their inputs from."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from imgbuild.doctor.checks import WRITE, Finding, Status, check_disk, check_engine, check_programs
from imgbuild.doctor.input_checks import check_base, check_ca, check_index, check_interpreter
from imgbuild.files import write_text
from imgbuild.matrix.images import images_of
from imgbuild.matrix.model import Matrix
from imgbuild.parallel import background, in_parallel
from imgbuild.project import Project, cache_dir
from imgbuild.settings import Settings, Sites, load_settings

HEADER = """\
# What this machine gives to builds. Every imgbuild command reads it; it is never committed.
# Written by `imgbuild doctor --write`, which keeps what you set here while it is valid.
# All keys: docs/reference.md.
"""


def diagnose(
    project: Project, matrix: Matrix, settings: Settings, stack: str | None, *, writing: bool
) -> tuple[list[Finding], Settings]:
    """Return the findings, and the settings with every input decided.

    Changes nothing; takes seconds, whatever does not answer. With ``writing`` these settings will
    be written, so that what they decide counts already. With ``stack`` the inputs are those of its
    images; InputError if there is no such stack.
    """
    images, cache = images_of(matrix, stack), cache_dir()
    ca = check_ca(settings.ca_bundle)
    sites = Sites(matrix.upstream_urls, settings.model_copy(update=ca.choice))
    checks = [
        partial(check_disk, "disk, cache", cache, f"rm -r {cache}, or set XDG_CACHE_HOME"),
        *(
            partial(check_base, name, matrix.operating_systems[name], sites)
            for name in dict.fromkeys(image.os_name for image in images)
        ),
        *(
            partial(check_interpreter, version, matrix, sites)
            for version in dict.fromkeys(image.version_of("python") for image in images)
        ),
        partial(check_index, sites),
    ]
    engine = background(lambda: [*check_engine(settings.engine, project.root)])
    others = in_parallel(lambda check: check(), checks, len(checks))
    findings = [*engine.result(), *others, ca, *check_programs()]
    left = [name for name in matrix.stacks if stack not in {None, name}]
    findings += [Finding(Status.SKIPPED, f"stack {name}", "not checked") for name in left]
    choice = settings
    for key, value in (item for found in findings for item in found.choice.items()):
        merged = {**getattr(choice, key), **value} if isinstance(value, dict) else value
        choice = choice.model_copy(update={key: merged})
    return [_recorded(found, writing=writing) for found in findings], choice


def _recorded(found: Finding, *, writing: bool) -> Finding:
    if found.fix != WRITE:
        return found
    if writing:
        return replace(found, status=Status.FINE, fix=None)
    return replace(found, detail=f"{found.detail}; imgbuild.local.yaml does not say so yet")


def write_settings(settings: Settings, path: Path) -> bool:
    """Write ``settings`` to ``path``; return whether the file changed.

    A file that already says the same stays as it is, comments and all. It is a MachineError if the
    file cannot be written.
    """
    import yaml  # noqa: PLC0415 - only this command writes YAML

    if path.exists() and load_settings(path) == settings:
        return False
    values = settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    filled = {key: value for key, value in values.items() if value}
    write_text(path, HEADER + (yaml.safe_dump(filled, sort_keys=False) if filled else "{}\n"))
    return True
