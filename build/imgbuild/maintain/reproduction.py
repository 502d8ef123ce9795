"""Build an image again without caches, and compare it with the original."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from imgbuild.build.context import BuildContext, BuildOptions, Log, open_context
from imgbuild.build.display import BuildDisplay
from imgbuild.build.prepare import prepare, require_disk_space
from imgbuild.build.sizes import image_layers
from imgbuild.build.targets import image_target
from imgbuild.core.differences import changed_values
from imgbuild.core.errors import ImgbuildError, InputError, MachineError
from imgbuild.core.files import work_folder
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings, base_setting
from imgbuild.dockerfile.labels import (
    BASE,
    BASE_DIGEST,
    CPYTHON,
    INPUT_DIGEST,
    NAME,
    OCI,
    SUBSTITUTES,
    TAKEN_WHEEL,
)
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.build import BuildTarget, build_image, forget_cache
from imgbuild.engine.client import Engine, open_engine
from imgbuild.engine.steps import Step
from imgbuild.engine.types import Layer, StoredImage
from imgbuild.inputs.build_inputs import prepare_inputs
from imgbuild.maintain.layer_files import (
    NOTHING,
    Differences,
    LayerFiles,
    file_differences,
    read_layers,
)
from imgbuild.maintain.revision import open_revision
from imgbuild.matrix.images import Image, standin_image
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import find_image
from imgbuild.plan.changes import find_changes
from imgbuild.plan.digest import InputReader, input_digest
from imgbuild.plan.plan import Action, PlanItem, labels_are_consistent

_REVISION, _BASE_NAME = f"{OCI}.revision", f"{OCI}.base.name"
#: Labels about the build that do not describe the image's contents.
_OF_BUILD = {TAKEN_WHEEL, *(f"{OCI}.{name}" for name in ("source", "url", "documentation"))}


@dataclass(frozen=True)
class ComparedLayer:
    """A layer of both images; ``files`` has the differing files by path, or None if not read."""

    made_by: str
    size: int
    same: bool
    files: Mapping[str, Differences] | None


@dataclass(frozen=True)
class Reproduction:
    """The comparison of an image with its rebuilt copy.

    ``lacking`` are inputs that could not be restored. ``substituted`` are inputs that differ from
    the checkout's, because the image's labels name others.
    """

    image: str
    reference: str
    lacking: tuple[str, ...]
    substituted: tuple[str, ...]
    layers: tuple[ComparedLayer, ...]
    packages: Differences
    configuration: Differences

    @property
    def same(self) -> bool:
        return all(layer.same for layer in self.layers) and not self.configuration

    def as_json(self) -> dict[str, Any]:
        return {"same": self.same, **asdict(self)}


class RevisionReader(InputReader):
    """Reads the committed files of a revision without rendering them again.

    imgbuild's code may have changed since then, so it could render other files.
    """

    def dockerfile(self, image: Image) -> Dockerfile:
        """Return the image's committed Dockerfile; InputError if it cannot be read."""
        path = dockerfile_path(image, self.project.dockerfiles)
        try:
            text = path.read_text(encoding="utf-8")
            return Dockerfile(text).for_architecture(image.architecture)
        except (OSError, UnicodeError):
            raise InputError("its Dockerfile is missing or cannot be read") from None

    def require_locks(self, image: Image) -> None:
        """Accept the locks without a check, because the digest covers their contents."""


def drop_unknown(settings: Settings, matrix: Matrix) -> Settings:
    """Remove settings that an older matrix does not support, because they would be errors."""
    named: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
        "base": (settings.base, matrix.operating_systems),
        "cpython": (settings.cpython, matrix.python),
        "mirrors": (settings.mirrors, matrix.upstreams),
    }
    kept = {}
    for section, (values, known) in named.items():
        kept[section] = {name: value for name, value in values.items() if name in known}
    return settings.model_copy(update=kept)


def reproduce(
    project: Project,
    name: str,
    log: Log,
    image: Image | None = None,
    builders: tuple[str, ...] = (),
) -> Reproduction:
    """Build an image again and compare both; without ``image``, pull a missing original.

    InputError: there is no such image, or imgbuild did not build it.
    CheckFailedError, MachineError: it can no longer be built.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(project.settings.engine))
        original = _pull_original(name, image, engine, log, stack)
        labels = original.labels
        options = BuildOptions(test=False, builders=builders)
        matrix = load_matrix(project.matrix)
        image = find_image(matrix, labels[NAME])
        context = stack.enter_context(open_context(project, (image,), options, log, lock=True))
        context, item, lacking, substituted = _restore_inputs(labels, context, stack)
        for text in lacking:
            log(f"This input has changed: {text}")
        for text in substituted:
            log(f"This input is not from the checkout: {text}")
        if substituted:  # a base from a label could steal logins, because its programs run
            secrets = {key: path for key, path in context.inputs.secrets.items() if key != "netrc"}
            inputs = replace(context.inputs, secrets=secrets)
            context = replace(context, inputs=inputs)
        rebuilt_id = _rebuild(item, labels.get(_REVISION), context, stack)
        rebuilt = engine.need(rebuilt_id)
        layers, packages = _compare_layers(original, rebuilt, engine)
        old = _flatten(engine.configuration(original.id))
        new = _flatten(engine.configuration(rebuilt.id))
        return Reproduction(
            image=image.name,
            reference=name,
            lacking=tuple(lacking),
            substituted=tuple(substituted),
            layers=layers,
            packages=packages,
            configuration=changed_values(old, new),
        )


def _pull_original(
    name: str, image: Image | None, engine: Engine, log: Log, stack: ExitStack
) -> StoredImage:
    """Return the original image; if it was pulled, ``stack`` removes it at the end."""
    present = engine.inspect(name)
    if image and not present:
        raise InputError(
            f"The engine has no image {name}. Build it first (imgbuild build {image.name}), or "
            "name a published one: HOST/REPOSITORY:TAG."
        )
    original = present or engine.need_or_pull(name, log)
    if not present:
        stack.callback(lambda: engine.discard(original.id))
        stack.callback(lambda: None if "@" in name else engine.untag(name))
    if not labels_are_consistent(original):
        raise InputError(
            f"{name} was not built by imgbuild, or something was added to it, so its inputs are "
            "unknown. Name an image of `imgbuild build`."
        )
    return original


def _restore_inputs(
    labels: Mapping[str, str], context: BuildContext, stack: ExitStack
) -> tuple[BuildContext, PlanItem, list[str], list[str]]:
    """Return the context and the plan to build the image with the inputs in its labels.

    Also return the inputs that could not be restored, and the inputs that replace inputs of the
    checkout. If this checkout gives another input digest, use the files of the image's commit.
    """
    lacking: list[str] = []
    substituted: list[str] = []
    commit = labels.get(_REVISION, "")
    settings = _restore_settings(labels, context, lacking, substituted)
    context = replace(context, settings=settings)
    restored, item = _plan_checkout(context.project, labels, context)
    if item.digest.total != labels[INPUT_DIGEST] and commit not in {"", context.revision}:
        try:
            # Anybody can write the label, and the commit's Dockerfiles get the secrets. Therefore
            # `open_revision` accepts only commits in the history of this checkout.
            commit = commit.removesuffix("-dirty")
            checkout = stack.enter_context(open_revision(context.project, commit))
            restored, item = _plan_checkout(checkout, labels, context)
        except InputError as error:
            lacking.append(f"the checkout: {error}")
    lacking += [f"{change.input}: {change.arrow}" for change in item.changes]
    return restored, item, lacking, substituted


def _usual_digest(context: BuildContext) -> str | None:
    """Return the digest of the usual base image; None if it is made from the archive."""
    (image,) = context.images
    usual = context.settings.base_for(image.os_name, image.os.image)
    return usual.image.rpartition("@")[2] if usual.image else None


def _restore_settings(
    labels: Mapping[str, str], context: BuildContext, lacking: list[str], substituted: list[str]
) -> Settings:
    """Return settings that get each input from the origin that the image's labels name."""
    (image,) = context.images
    settings = context.settings
    base = {**settings.base}
    cpython = {**settings.cpython}
    reference = f"{labels.get(_BASE_NAME)}@{labels.get(BASE_DIGEST)}"
    if labels.get(BASE) == "bootstrapped":
        base[image.os_name] = base_setting("bootstrap")
    elif labels.get(BASE) == "registry":
        try:
            known = base_setting("registry", image=reference)
            own = labels.get(BASE_DIGEST) == _usual_digest(context)
            if not context.engine.inspect(reference):
                context.engine.pull(reference, pinned=own, platform=image.platform)
            base[image.os_name] = known
            if not own:
                substituted.append(f"the base image {reference}, from the image's label")
        except ValidationError:
            lacking.append(f"the base image {reference}: this is not an image with a digest")
        except ImgbuildError as error:
            lacking.append(f"the base image {reference}: {error}")
    if labels.get(CPYTHON) == "source":
        cpython.pop(image.version_of("python"), None)
    substitutes = settings.substitutes if SUBSTITUTES in labels else {}
    update = {"base": base, "cpython": cpython, "substitutes": substitutes}
    return settings.model_copy(update=update)


def _plan_checkout(
    project: Project, labels: Mapping[str, str], context: BuildContext
) -> tuple[BuildContext, PlanItem]:
    """Return the context and the plan to build the image from a checkout, with its changes."""
    matrix = load_matrix(project.matrix)
    image = find_image(matrix, labels[NAME])
    if context.settings.standin:
        image = standin_image(image)
    settings = drop_unknown(context.settings, image.matrix)
    inputs = prepare_inputs((image,), settings, project)
    if inputs.bases[image.base_name].digest is None:
        raise MachineError(
            f"{image.name} needs the base image {image.base_name} from the distribution's archive, "
            "but this machine has not made it yet. Set `base: "
            f"{{{image.os_name}: {{from: bootstrap}}}}` in imgbuild.local.yaml, and run `imgbuild "
            f"doctor --write {image.name}`."
        )
    context = replace(context, project=project, images=(image,), settings=settings, inputs=inputs)
    reader = RevisionReader(project)
    digest = input_digest(image, inputs, reader)
    changes = find_changes(labels, image, digest)
    item = PlanItem(image, digest, Action.BUILD, "reproduced", changes=changes)
    return context, item


def _rebuild(item: PlanItem, commit: str | None, context: BuildContext, stack: ExitStack) -> str:
    """Build an untagged image and return its id; ``stack`` removes it and its cache mounts."""
    image = item.image
    mark = f"reproduce-{uuid4().hex}"
    made = set[str]()
    require_disk_space([image], context.engine)
    downloads, failed = prepare([image], context)
    for error in failed.values():
        raise error
    buildx = context.builders[0]
    folders = downloads[image.name]
    inputs, project = context.inputs, context.project
    own = buildx.builder is None
    target = image_target(
        item, inputs, folders, project, commit, in_engine=own, machine=buildx.platform
    )
    before = {stored.id for stored in context.stored}  # an identical result must not be removed
    stack.callback(_discard_new, made, before, context.engine)
    stack.callback(forget_cache, buildx, f"description~={mark}")
    with work_folder("reproduce") as folder, BuildDisplay([image.name]) as display:

        def show(step: Step) -> None:
            display.show_step(image.name, step)
            if step.image_id:  # remember it now, because an interrupt may end the build
                made.add(step.image_id)

        isolated = _isolate(target, folder, mark)
        log, epoch = context.log_path(image.name), epoch_seconds(image)
        image_id, _ = build_image(buildx, isolated, log=log, show=show, epoch=epoch)
    made.add(image_id)
    return image_id


def _discard_new(made: set[str], before: set[str], engine: Engine) -> None:
    for image_id in made - before:
        engine.discard(image_id)


def _isolate(target: BuildTarget, folder: Path, mark: str) -> BuildTarget:
    """Return a target that uses no cached steps and no cache mounts of other builds.

    It still shares the limit for parallel compilations.
    """
    path = folder / f"{target.name}.Dockerfile"
    text = target.dockerfile.read_text("utf-8")
    text = re.sub("(type=cache,id=)(?!imgbuild-compiling)", rf"\1{mark}-", text)
    path.write_text(text, "utf-8")
    needs = tuple(_isolate(needed, folder, mark) for needed in target.needs)
    return replace(target, dockerfile=path, anew=True, needs=needs)


def _compare_layers(
    original: StoredImage, rebuilt: StoredImage, engine: Engine
) -> tuple[tuple[ComparedLayer, ...], Differences]:
    """Return the layers of both images, lowest first, and the changed Debian packages."""
    same = {*original.layers} & {*rebuilt.layers}
    steps: dict[str | None, Layer] = {}
    files: list[list[LayerFiles | None]] = []
    for image in (original, rebuilt):
        history = engine.history(image.id)
        steps |= {layer.diff_id: layer for layer in image_layers(history, image.layers)}
        if original.layers == rebuilt.layers:
            files.append([])
        else:
            archive = engine.save(image.id)
            files.append(read_layers(archive, same))
    old_files, new_files = files
    layers = []
    for number, (old, new) in enumerate(zip_longest(original.layers, rebuilt.layers)):
        differences: Mapping[str, Differences] | None = {}
        if old != new:
            old_layer = old_files[number] if number < len(old_files) else NOTHING
            new_layer = new_files[number] if number < len(new_files) else NOTHING
            differences = file_differences(old_layer, new_layer)
        step = steps.get(new or old) or Layer(None, 0, "")
        layer = ComparedLayer(step.made_by, step.size, old == new, differences)
        layers.append(layer)
    old_packages = _latest_packages(old_files)
    new_packages = _latest_packages(new_files)
    moved: Differences = {}
    if old_packages and new_packages:
        moved = changed_values(old_packages, new_packages)
    return tuple(layers), moved


def _latest_packages(layers: Sequence[LayerFiles | None]) -> Mapping[str, str]:
    """Return the versions of Debian packages from the uppermost layer with a package list."""
    for layer in reversed(layers):
        if layer:
            _, packages = layer
            if packages:
                return packages
    return {}


def _flatten(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration as texts by name, without labels about the build."""
    parts = {**configuration}
    labels = parts.pop("Labels", None) or {}
    variables = parts.pop("Env", None) or ()
    texts = {name: json.dumps(value) for name, value in parts.items() if value}
    for name, value in labels.items():
        if name not in _OF_BUILD:
            texts[f"label {name}"] = value
    for variable in variables:
        name, _, _ = variable.partition("=")
        texts[f"variable {name}"] = variable
    return texts
