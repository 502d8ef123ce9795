"""Run all checks in parallel, and choose the sources of inputs for builds on this machine."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from imgbuild.core.errors import ImgbuildError
from imgbuild.core.files import write_text
from imgbuild.core.parallel import background, in_parallel
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.doctor import checks, input_checks
from imgbuild.doctor.checks import WRITE, Finding, Status
from imgbuild.doctor.gpu_checks import check_gpus
from imgbuild.engine.client import Engine
from imgbuild.engine.types import machine_platform
from imgbuild.matrix.images import Image, all_images, with_build_images
from imgbuild.net.sites import Sites

Check = Callable[[], Finding | Iterable[Finding]]
HEADER = """\
# The inputs that this machine offers to builds. Every imgbuild command reads it; never commit it.
# Written by `imgbuild doctor --write`, which keeps what you set here while it is valid.
# All keys: docs/reference.md of imgbuild.
"""


def diagnose(
    project: Project, images: Sequence[Image], settings: Settings, *, writing: bool
) -> tuple[list[Finding], Settings]:
    """Check whether this machine can build ``images``; return the findings and the settings.

    The settings name a source for every input. Nothing is changed, and time limits keep the checks
    short. With ``writing``, the settings will be written, so faults that they fix are not reported.
    A check that raises an error, for example because of a permission, is reported as a finding.
    """
    matrix = images[0].matrix
    check_ca = partial(input_checks.check_ca, settings.ca_bundle)
    (ca,) = _run_check("Inputs", "CA bundle", check_ca)
    with_ca = settings.model_copy(update=dict(ca.choice))
    sites = Sites(matrix.upstream_urls, with_ca)
    engine = background(partial(checks.find_engine, settings.engine, project.root))

    own = {input_checks.interpreter_name(image) for image in images}
    # The written settings must also work for later builds of other images of the same stacks.
    stacks = {image.stack for image in images if writing}
    others = []
    for architecture in {image.architecture for image in images}:
        family = all_images(matrix, architecture)
        others += [image for image in family if image.stack in stacks]
    pythons = {input_checks.interpreter_name(image): image for image in (*images, *others)}

    def can_pull(reference: str) -> bool:
        host, version, _ = engine.result()
        if not version:
            return False
        able, _ = checks.ask_check(lambda: Engine(host).can_pull(reference))
        return bool(able)

    def base(image: Image) -> Finding:
        return input_checks.check_base(image, sites, can_pull)

    def interpreter(image: Image) -> Finding:
        finding = input_checks.check_interpreter(image, sites)
        name = input_checks.interpreter_name(image)
        if name in own or finding.status is not Status.MISSING or finding.fix == WRITE:
            return finding
        return replace(finding, status=Status.WARNING)

    def rest_of_engine() -> Iterable[Finding]:
        platforms = tuple(dict.fromkeys(image.platform for image in images))
        return checks.check_engine(settings.engine, project.root, *engine.result()[:2], platforms)

    of_engine: dict[str, Check] = {"engine": lambda: engine.result()[2], "buildx": rest_of_engine}
    of_inputs: dict[str, Check] = {}
    # The engine may not answer, and is usually on this machine.
    for image in with_build_images(images, machine_platform(os.uname().machine)):
        of_inputs[f"base {image.base_name}"] = partial(base, image)
    for name, image in pythons.items():
        of_inputs[name] = partial(interpreter, image)
    of_inputs["sites"] = partial(input_checks.check_sites, images, project.locks, sites)
    of_inputs["Python index"] = partial(input_checks.check_index, sites)
    of_inputs["CA bundle"] = lambda: ca
    of_user: dict[str, Check] = {
        "folders": checks.check_folders,
        "programs": partial(checks.check_programs, project.root),
    }
    of_gpus: dict[str, Check] = {
        "GPU": lambda: check_gpus(all_images(matrix), images, *engine.result()[:2])
    }
    groups = {"Engine": of_engine, "Inputs": of_inputs, "This user": of_user, "GPUs": of_gpus}
    findings = _run_checks(groups)
    return _decide(findings, settings, writing=writing)


def _decide(
    findings: Sequence[Finding], settings: Settings, *, writing: bool
) -> tuple[list[Finding], Settings]:
    """Return the findings for the output, and the settings that follow from them."""
    choice = settings
    shown = []
    has_engine = True
    for finding in findings:
        choice = _with_choice(choice, finding)
        # Making a base image needs an engine. Other fixes only write the settings file.
        is_done = writing and (has_engine or bool(finding.choice))
        finding_shown = _with_writing(finding, writing=is_done)
        shown.append(finding_shown)
        if finding.what == "engine":
            has_engine = finding_shown.status is not Status.MISSING
    return shown, choice


def _run_checks(groups: Mapping[str, Mapping[str, Check]]) -> list[Finding]:
    """Run all checks in parallel; return their findings in the order of the groups."""
    calls = []
    for group, named in groups.items():
        calls += [partial(_run_check, group, what, check) for what, check in named.items()]
    findings: list[Finding] = []
    for results in in_parallel(lambda call: call(), calls, len(calls)):
        findings += results
    return findings


def _with_choice(settings: Settings, finding: Finding) -> Settings:
    """Return the settings with a finding's choice; a section keeps its other keys."""
    for key, value in finding.choice.items():
        decided = value
        if isinstance(value, dict):
            decided = {**getattr(settings, key), **value}
        settings = settings.model_copy(update={key: decided})
    return settings


def _run_check(group: str, what: str, check: Check) -> list[Finding]:
    try:
        result = check()
        findings = [result] if isinstance(result, Finding) else [*result]
    except (ImgbuildError, OSError) as error:
        findings = [Finding(Status.MISSING, what, f"cannot be checked: {error}")]
    return [replace(finding, group=group) for finding in findings]


def _with_writing(finding: Finding, *, writing: bool) -> Finding:
    """Return the finding without the fix that this run makes; if it is not made, say so."""
    if finding.fix != WRITE:
        return finding
    if writing:
        return replace(finding, status=Status.FINE, fix=None)
    if not finding.choice:  # a base image is not made yet
        return finding
    return replace(finding, detail=f"{finding.detail}; not yet in imgbuild.local.yaml")


def write_settings(settings: Settings, path: Path, current: Settings) -> bool:
    """Write the settings that differ from the defaults to ``path``; return whether it changed.

    If the settings equal the ``current`` ones, an existing file is not changed, so its comments are
    kept.

    MachineError: the file cannot be written.
    """
    import yaml  # noqa: PLC0415 - only this command writes YAML

    if path.exists() and settings == current:
        return False
    defaults = _dump_settings(Settings())
    filled = {}
    for key, value in _dump_settings(settings).items():
        section = value
        if isinstance(value, dict):
            section = _without_defaults(value, defaults.get(key, {}))
        if section:
            filled[key] = section
    # If there are no sections, the text is `{}`.
    text = yaml.safe_dump(filled, sort_keys=False)
    write_text(path, HEADER + text)
    return True


def _dump_settings(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json", by_alias=True, exclude_none=True)


def _without_defaults(section: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return a section without default values, so that later changes of defaults take effect."""
    return {name: value for name, value in section.items() if value != defaults.get(name)}
