"""Where this machine takes the inputs of a build from, made ready as named build contexts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

from imgbuild.dockerfile.variables import PREFIX, epoch_seconds
from imgbuild.errors import InputError
from imgbuild.inputs.base import (
    BaseLayout,
    BaseRecipe,
    bootstrap_base,
    find_base,
    open_layout,
    whole_base,
)
from imgbuild.inputs.cpython import relocate_prefix
from imgbuild.inputs.tool import uv_context
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.plan.downloads import ImageDownloads, image_downloads
from imgbuild.plan.keyrings import keyrings_context, other_keyrings
from imgbuild.plan.secrets import build_secrets, require_files
from imgbuild.project import Project
from imgbuild.settings import LayoutBase, PrefixInterpreter, RegistryBase, Settings
from imgbuild.sites import make_sites


@dataclass(frozen=True)
class BaseInput:
    """The base image: a reference that the engine has or can pull.

    ``digest`` is ``None`` until it has been made.
    """

    reference: str
    digest: str | None
    origin: str
    layout: BaseLayout | None = None
    require_whole: Callable[[], None] = lambda: None
    """Makes a damaged layout again; called before an engine loads it, since it reads all of it."""


@dataclass(frozen=True)
class InterpreterInput:
    """CPython: a folder that replaces the stage that compiles it, or ``None``."""

    context: Path | None
    digest: str
    origin: str


@dataclass(frozen=True)
class BuildInputs:
    """Everything a build takes that is not in the checkout."""

    bases: Mapping[str, BaseInput]
    interpreters: Mapping[str, InterpreterInput]
    uv: Path
    uv_version: str
    secrets: Mapping[str, Path] = field(default_factory=dict)
    downloads: Mapping[str, ImageDownloads] = field(default_factory=dict)
    keyrings: Path | None = None
    standin: str | None = None


@dataclass(frozen=True)
class Preparation:
    """How inputs are made: where they are kept, what is said meanwhile.

    ``make`` false looks only: a base image that was never made is then without digest.
    """

    cache: Path
    log: Path
    project: Project
    say: Callable[[str], None]
    make: bool = True
    refresh: bool = False


def prepare_inputs(
    images: Iterable[Image], settings: Settings, preparation: Preparation
) -> BuildInputs:
    """Return the inputs that ``images`` need, made where they are missing.

    Raises:
        InputError: the settings name a prefix or a CA bundle that cannot be used.
        MachineError: a tool is missing, the archive cannot be reached, the disk is full.

    """
    chosen = tuple(images)
    check_settings(settings, chosen[0].matrix)
    systems = {image.os_name: image for image in chosen}
    pythons = {image.version_of("python"): image for image in chosen}
    return BuildInputs(
        {name: _base(image, settings, preparation) for name, image in systems.items()},
        {v: _interpreter(image, settings, preparation) for v, image in pythons.items()},
        uv_context(preparation.cache),
        version("uv"),
        build_secrets(settings, preparation.cache),
        {i.name: image_downloads(i, preparation.project.locks, settings) for i in chosen},
        _keyrings(chosen, settings, preparation),
        settings.standin.note if settings.standin else None,
    )


def _keyrings(
    images: tuple[Image, ...], settings: Settings, preparation: Preparation
) -> Path | None:
    own = preparation.project.files / "keyrings"
    return keyrings_context(images[0].matrix, settings, own, preparation.cache)


def _base(image: Image, settings: Settings, preparation: Preparation) -> BaseInput:
    choice = settings.base_for(image.os_name, image.os.image)
    if isinstance(choice, RegistryBase):
        return BaseInput(choice.image, choice.image.rsplit("@", 1)[1], "registry")
    if isinstance(choice, LayoutBase):
        local = open_layout(Path(choice.path))
        return BaseInput(local.reference, local.image_id, "OCI layout", local)
    recipe = base_recipe(image)
    layout = None if preparation.refresh else find_base(recipe, preparation.cache)
    if layout is None and not preparation.make:
        return BaseInput("", None, "bootstrapped")
    if layout is None:
        preparation.say(f"making the base image {image.os_name} (about half a minute)")
        layout = bootstrap_base(
            recipe,
            preparation.cache,
            refresh=preparation.refresh,
            log=preparation.log,
            on_line=None,
        )
    again = partial(bootstrap_base, recipe, preparation.cache, log=preparation.log)
    whole = partial(whole_base, layout, again, preparation.say)
    return BaseInput(layout.reference, layout.image_id, "bootstrapped", layout, whole)


def base_recipe(image: Image) -> BaseRecipe:
    """Return what the image's base is made from, where it is made here."""
    return BaseRecipe(image.os_name, image.os.distribution, image.os.suite, epoch_seconds(image))


def _interpreter(image: Image, settings: Settings, preparation: Preparation) -> InterpreterInput:
    wanted = image.version_of("python")
    choice = settings.interpreter_for(wanted)
    if not isinstance(choice, PrefixInterpreter):
        return InterpreterInput(None, "source", "source")
    relocated = relocate_prefix(
        Path(choice.path), wanted, preparation.cache, target=PREFIX, epoch=epoch_seconds(image)
    )
    return InterpreterInput(relocated.path, relocated.digest, "local prefix")


def check_settings(settings: Settings, matrix: Matrix) -> None:
    """Refuse settings that mean nothing here, or name files that cannot be used.

    Raises:
        InputError: what, and what to do.

    """
    _check_names(settings, matrix)
    require_files(settings)
    make_sites(matrix.upstream_urls, settings).login("https://localhost/")
    other_keyrings(matrix, settings)
    for base in settings.base.values():
        if isinstance(base, LayoutBase):
            open_layout(Path(base.path))


def _check_names(settings: Settings, matrix: Matrix) -> None:
    """Refuse settings for what the matrix does not have: they would silently do nothing."""
    pairs = (
        ("base", settings.base, matrix.operating_systems),
        ("cpython", settings.cpython, matrix.python),
        ("mirrors", settings.mirrors, matrix.upstreams),
    )
    for section, named, known in pairs:
        unknown = sorted({*named} - {*known})
        if unknown:
            raise InputError(
                f"imgbuild.local.yaml: {section}: the matrix has no {', '.join(unknown)}; "
                f"there are: {', '.join(known)}."
            )
