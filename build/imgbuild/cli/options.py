"""Options and output functions that commands share."""

import functools
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import (
    INSTALLED,
    OWN_CHECKOUT,
    Project,
    SettingsOptions,
    find_project,
    find_root,
)
from imgbuild.core.text import count_text, parse_duration, printable
from imgbuild.matrix.selection import NAMES_ALONE, Selection
from imgbuild.net.addresses import has_registry

if TYPE_CHECKING:
    from imgbuild.core.settings import Settings
    from imgbuild.engine.client import Engine
    from imgbuild.engine.types import StoredImage
    from imgbuild.matrix.evidence import Architecture
    from imgbuild.matrix.images import Image
    from imgbuild.matrix.model import Matrix
    from imgbuild.net.signing import Trust
    from imgbuild.net.sites import Sites

#: The error if no trusted signer is named, or only a part of one.
WHOSE = "Which signatures do you trust? Give --key KEY, or --identity NAME --issuer URL."
#: The reference or the id of an image in an engine.
_REFERENCE = re.compile(r"\w[\w./:@-]*", re.ASCII)
#: The name of an image, which is also the name of its folder.
_NAME = re.compile(r"tf-(?P<tf>[^-]+)-[cg]pu-(?P<stack>.+?)(-(open|intel|no-)mpi)?")


def option(spelling: str, help_text: str, *, default: Any = None, **more: Any) -> Any:  # noqa: ANN401
    """Return an option from its spelling in ``--help``, for example ``--tag -t NAME:TAG``.

    typer.Option gets ``more``.
    """
    words = spelling.split()
    names = [word for word in words if word.startswith("-")]
    value = " ".join(words[len(names) :])
    return typer.Option(default, *names, metavar=value or None, help=help_text, **more)


def flag(name: str, help_text: str) -> Any:  # noqa: ANN401 - as typer.Option
    return option(name, help_text, default=False)


def repository(name: str, help_text: str) -> Any:  # noqa: ANN401 - as typer.Option
    """Return an option for one repository, by default the settings' repository."""
    form = "Format: HOST[:PORT]/REPOSITORY. Default: publishing.repository in the settings."
    return option(f"{name} REPOSITORY", f"{help_text} {form}")


def complete(part: str | int) -> Callable[[typer.Context], list[str]]:
    """Return the shell completion of an option: a ``part`` of the images' names, or 0 for all.

    The names come from the images' folders, because reading the matrix takes longer and fails while
    somebody edits it.
    """

    def values(ctx: typer.Context) -> list[str]:
        checkout = ctx.params.get("checkout")  # missing after an error, which completion hides
        with suppress(OSError):
            folders = checkout.dockerfiles.iterdir() if checkout else ()
            matches = (_NAME.fullmatch(folder.name) for folder in folders)
            return sorted({match[part] for match in matches if match})
        return []

    return values


STACK = option("--stack STACK", "The stack, for example debian.", autocompletion=complete("stack"))
JSON = flag("--json", "Print JSON.")
JOBS = option(
    "--jobs COUNT",
    "Number of suites to run in parallel.",
    default=min(os.cpu_count() or 1, 4) + 1,  # one more than cores, because suites also wait
    min=1,
    max=64,
    show_default="cores + 1, at most 5",
)

KEY = option("--key KEY", "Public key that you trust: a file or the address of a KMS.")
IDENTITY = option(
    "--identity NAME",
    "Signer of keyless signatures that you trust: an email address or a CI workflow.",
)
ISSUER = option("--issuer URL", "OIDC issuer of the identity.")
SIGN_KEY = option(
    "--sign-key KEY",
    "Sign with cosign and this key: a file or the address of a KMS. cosign reads the password of "
    "a file from COSIGN_PASSWORD.",
)
SIGN_KEYLESS = flag(
    "--sign-keyless",
    "Sign with cosign and your Sigstore identity. In CI, this is the identity of the workflow.",
)


BUILDER = option(
    "--builder NAME",
    "Use this `docker buildx` builder instead of the engine's own BuildKit. Repeatable for "
    "`build`, which divides the images among the builders.",
)

PLATFORM = option(
    "--platform PLATFORM",
    "linux/amd64, linux/arm64, or all. Default: the platform of the engine.",
)


def echo(text: str, *, err: bool = False) -> None:
    """Print a part of the result, with terminal control characters replaced."""
    typer.echo(printable(text), err=err)


def info(text: str) -> None:
    """Write a line to standard error, because standard output is for the result."""
    echo(text, err=True)


def print_json(result: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    echo(json.dumps(result, indent=2))


def print_result(result: Any, lines: Iterable[str], *, as_json: bool) -> None:  # noqa: ANN401
    """Print the result as JSON, or print the lines."""
    if as_json:
        print_json(result)
    else:
        echo("\n".join(lines))


def open_project(path: Path | None, settings: SettingsOptions | None = None) -> Project:
    """Return the checkout of ``--project``, else around this folder, else the installed family."""
    if path and not os.path.isdir(path):  # noqa: PTH112 - does not raise for a loop of links
        raise InputError(f"--project {path}: no such folder.")
    named = path is not None
    start = Path(os.path.realpath(path or "."))
    return find_project(start, settings, or_installed=not named, named=named)


def replace_found_checkout(ctx: typer.Context, checkout: Project) -> Project:
    """Return another family instead of a checkout that nobody named, but the one that is running.

    A checkout can start programs on this machine. The current folder can belong to somebody's
    repository, which can bring a checkout of its own.

    InputError: there is no other family.
    """
    source = ctx.get_parameter_source("checkout")
    is_named = source is not None and source.name != "DEFAULT"
    if is_named or checkout.root in {INSTALLED, OWN_CHECKOUT}:
        return checkout
    for other in (INSTALLED, OWN_CHECKOUT):
        if (other / "matrix.yaml").is_file():
            info(f"note: --project {checkout.root} would use the images of that checkout.")
            return Project(other, checkout.options)
    raise InputError(
        f"The checkout of imgbuild in {checkout.root} may belong to the repository. It is not "
        "used, because a checkout can start programs on this machine. If you trust it, use "
        f"--project {checkout.root}."
    )


def open_project_if_any(path: Path | None, settings: SettingsOptions | None) -> Project | None:
    """Return the checkout like `open_project`, or None if none is named and none is found."""
    here = Path(os.path.realpath("."))
    if path or INSTALLED.is_dir() or find_root(here):
        return open_project(path, settings)
    return None


def _project(
    find: Callable[[Path | None, SettingsOptions | None], Project | None],
) -> Any:  # noqa: ANN401 - as option
    def callback(ctx: typer.Context, path: Path | None) -> Project | None:
        return find(path, ctx.find_object(SettingsOptions))  # None while a shell completes words

    return option(
        "--project DIR",
        "Checkout to use. Default: the checkout around the current folder, else the installed "
        "images.",
        envvar="IMGBUILD_PROJECT",
        parser=Path,
        callback=callback,
    )


PROJECT = _project(open_project)
PROJECT_IF_ANY = _project(open_project_if_any)


def require_own(project: Project, writer: str) -> None:
    """Raise InputError if a command would write to the installed family."""
    if project.is_installed:
        raise InputError(
            f"`{writer}` would change the family that is installed with imgbuild "
            f"({project.root}). Make your own family with `imgbuild init DIR`, and run the command "
            "in that folder."
        )


def check_signer(key: str | None, keyless: bool) -> None:
    """Raise InputError if the options name two signers, or a key file that does not exist."""
    if key and keyless:
        raise InputError("Use either --sign-key or --sign-keyless.")
    if key and "://" not in key and not Path(key).is_file():
        raise InputError(f"--sign-key {key}: no such file.")


def choose_trust(
    settings: "Settings", key: str | None, identity: str | None, issuer: str | None
) -> "Trust | None":
    """Return the trust of the options, else of the settings; None if neither names a signer.

    InputError: the options are incomplete, or the key file does not exist.
    """
    from imgbuild.net.signing import Cosign, Trust, read_trust

    trust = read_trust(settings)
    if key or identity or issuer:
        if (key is None) == (identity is None) or (identity is None) != (issuer is None):
            raise InputError(WHOSE)
        trust = Trust(Cosign(settings.ca_bundle), key, identity, issuer)
    if trust and trust.key and "://" not in trust.key and not Path(trust.key).is_file():
        raise InputError(
            f"The key {trust.key}: no such file. Check --key, or `verify` in the settings."
        )
    return trust


def sites_of(project: Project, matrix: "Matrix") -> "Sites":
    """Return the matrix's upstreams with this machine's mirrors.

    InputError: the settings have a mirror for an unknown upstream.
    """
    from imgbuild.inputs.build_inputs import check_names
    from imgbuild.net.sites import Sites

    settings = project.settings
    check_names(settings, matrix)
    return Sites(matrix.upstream_urls, settings)


def seconds(name: str, duration: str | None) -> float | None:
    if duration is None:
        return None
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise InputError(f"{name}: {error}.") from None


@functools.cache
def load_matrix(project: Project) -> "Matrix":
    """Return the matrix of a project, which a command reads once, whatever asks for it."""
    from imgbuild.matrix import load

    return load.load_matrix(project.matrix)


def select(project: Project, selection: Selection) -> "tuple[Image, ...]":
    """Return the selected images of the checkout.

    If no version is named, or another publisher's image is, print which image is used instead.

    InputError: the matrix is wrong, no image matches, or options contradict each other.
    """
    from imgbuild.matrix.known_names import parse_known_name
    from imgbuild.matrix.selection import find_image, select_images

    matrix = load_matrix(project)
    images = select_images(matrix, selection)
    for text in filter(parse_known_name, selection.names):
        image = find_image(matrix, text)
        info(f"{text}: using {image.name}, with TensorFlow {image.tensorflow}.")
    if not selection.named:
        names = ", ".join(image.name for image in images)
        info(
            f"No version was named: using TensorFlow {images[0].minor} ({names}). Choose another "
            "with --tf VERSION."
        )
    return images


def for_platform(
    images: "tuple[Image, ...]", platform: str | None, settings: "Settings", *, everything: bool
) -> "tuple[Image, ...]":
    """Return the images for a platform, by default for the engine's own.

    With ``all``, each image is followed by the same image for the other platform, if there is one.
    With ``everything``, images that are not for the platform are left out. Images for arm64 were
    named with their architecture, and stay as they are.

    InputError: the platform is unknown, or an image is not for it.
    MachineError: the engine, whose platform is the default, does not answer.
    """
    from imgbuild.engine.types import AMD64, ARM64

    if platform not in {None, AMD64, ARM64, "all"}:
        raise InputError(f"--platform {platform}: use {AMD64}, {ARM64} or all.")
    is_default = platform is None
    if platform is None and any(image.platform == AMD64 for image in images):
        platform = _engine_platform(settings)
    own: list[Image] = []
    missing: list[str] = []
    for image in images:
        if image.platform != AMD64 and platform == AMD64 and not is_default:
            raise InputError(f"{image.name} is for {image.platform}, not for {AMD64}.")
        fitting = _fitting_images(image, platform)
        own += fitting
        if not fitting:
            missing.append(image.name)
    if own and everything and missing:
        info(f"note: {count_text(len(missing), 'image')} left out, which {platform} cannot run.")
    if own and (everything or not missing):
        return tuple(dict.fromkeys(own))
    raise InputError(_why_not_arm64(images, missing, is_default=is_default))


def _fitting_images(image: "Image", platform: str | None) -> "list[Image]":
    """Return the images for a platform or ``all`` that an image for amd64 stands for."""
    from imgbuild.engine.types import AMD64
    from imgbuild.matrix.images import for_other_architecture

    other = for_other_architecture(image)
    if image.platform != AMD64 or platform == AMD64:
        return [image]
    others = [other] if other else []
    return [image, *others] if platform == "all" else others


def prefer_own_platform(images: "tuple[Image, ...]", settings: "Settings") -> "tuple[Image, ...]":
    """Return the images for the engine's platform, or unchanged if it has none or is silent."""
    with suppress(InputError, MachineError):
        return for_platform(images, None, settings, everything=False)
    return images


def architecture_of(platform: str | None, settings: "Settings") -> "Architecture":
    """Return the architecture of a platform, by default of the engine's own.

    InputError: the platform is unknown.
    MachineError: the engine does not answer.
    """
    from imgbuild.matrix.evidence import MACHINES

    chosen = platform or _engine_platform(settings)
    for architecture in MACHINES:
        if chosen == f"linux/{architecture}":
            return architecture
    raise InputError(f"--platform {platform}: use linux/amd64 or linux/arm64.")


def _engine_platform(settings: "Settings") -> str:
    """Return the platform of the engine; do not ask the engine of an x86-64 machine.

    InputError: there are no images for it.
    """
    from imgbuild.engine.client import open_engine
    from imgbuild.engine.discovery import DEFAULT_HOST, resolve_host
    from imgbuild.engine.types import AMD64, ARM64, machine_platform

    host, machine = resolve_host(settings.engine) or DEFAULT_HOST, os.uname()
    is_local = host.startswith("unix://") and machine.sysname == "Linux"
    if is_local and machine_platform(machine.machine) == AMD64:
        return AMD64
    with open_engine(settings.engine) as engine:
        own = engine.version().platform
    if own not in {AMD64, ARM64}:
        raise InputError(
            f"The engine's platform is {own}, for which there are no images. Choose one with "
            f"--platform: {AMD64} or {ARM64}."
        )
    return own


def require_amd64(images: "Iterable[Image | StoredImage]", command: str) -> None:
    """Raise InputError if an image is not for linux/amd64, the only platform of some commands."""
    from imgbuild.engine.types import AMD64

    for image in images:
        if image.platform != AMD64:
            raise InputError(
                f"`{command}` is only for images for {AMD64}, and this one is for "
                f"{image.platform} (docs/arm64.md)."
            )


def _why_not_arm64(images: "Sequence[Image]", names: list[str], *, is_default: bool) -> str:
    """Return the error for images that are not for arm64."""
    from imgbuild.engine.types import AMD64, ARM64
    from imgbuild.matrix.images import all_images

    first = all_images(images[0].matrix, "arm64")[:1]
    advice = ""
    if first:
        advice = (
            f"The CPU images from TensorFlow {first[0].minor} on are for both, for example --tf "
            "latest: `imgbuild list` shows the platforms. "
        )
    engine = f"The engine's platform is {ARM64}, and" if is_default else f"For {ARM64},"
    emulation = ""
    if is_default:
        emulation = " An engine without AVX cannot run them, whatever emulates."
    return (
        f"{engine} there is no {', '.join(names)}: TensorFlow has no wheel for it, or the wheel "
        f"has no CUDA. {advice}For the others, use an x86-64 machine or --platform {AMD64}."
        f"{emulation}"
    )


def split_names(project: Project, selection: Selection) -> tuple[Selection, tuple[str, ...]]:
    """Split off the names that are not in the matrix; return the other selection and these names.

    A name is looked up in the matrix, then in the engine. A name that begins with a registry is
    accepted without a look-up. If the engine does not answer, so is a name with ``:`` or ``/``.

    InputError: there is no image with this name.
    """
    from imgbuild.matrix.selection import find_image

    if not selection.names:
        return selection, ()
    matrix = load_matrix(project)
    own, others = list[str](), list[str]()
    for name in dict.fromkeys(selection.names):
        try:
            find_image(matrix, name)
        except InputError as error:
            if not has_registry(name) and not _may_be_in_engine(project, name):
                text = f"{error} The engine has no such image."
                if {":", "/"} & {*name}:
                    text = (
                        f"Neither the matrix nor the engine has an image {name!r}. Check it with "
                        "`docker images`, or give a name that begins with a registry."
                    )
                raise InputError(text) from None
            others.append(name)
        else:
            own.append(name)
    return replace(selection, names=tuple(own)), tuple(others)


def _may_be_in_engine(project: Project, name: str) -> bool:
    """Return whether the engine has an image, or may have it if the engine does not answer.

    A name without ``:`` and ``/`` is then probably a misspelled image of the matrix.
    """
    from imgbuild.engine.client import open_engine

    if not _REFERENCE.fullmatch(name):
        return False
    try:
        with open_engine(project.settings.engine) as engine:
            return engine.inspect(name) is not None
    except MachineError:
        return bool({":", "/"} & {*name})


def pull_missing(engine: "Engine", reference: str, settings: "Settings") -> None:
    """Pull an image from its registry if the engine lacks it, and check its signature.

    CheckFailedError: the settings do not trust the image, which is removed again.
    """
    from imgbuild.net.signing import require_trusted

    if not has_registry(reference) or engine.inspect(reference):
        return
    stored = engine.need_or_pull(reference, info)
    try:
        require_trusted(stored.digests, reference, settings, made_here=False)
    except BaseException:
        if "@" not in reference:
            engine.untag(reference)
        engine.discard(stored.id)
        raise


def engine_images(checkout: Project, selection: Selection) -> "list[tuple[str, Image | None]]":
    """Return the references of the selected images, each with its image of the matrix, if any.

    If the settings use stand-ins, the references name images that were built from stand-ins.

    InputError: names are combined with other selection options, or there is no such image.
    """
    from imgbuild.matrix.images import standin_image

    if selection.names and selection != Selection(names=selection.names):
        raise InputError(NAMES_ALONE)
    selection, others = split_names(checkout, selection)
    references: list[tuple[str, Image | None]] = [(name, None) for name in others]
    if selection.names or not others:
        images = prefer_own_platform(select(checkout, selection), checkout.settings)
        if checkout.settings.standin:
            images = tuple(map(standin_image, images))
        references += [(image.tags[0], image) for image in images]
    return references


def _selection(
    images: list[str] | None = typer.Argument(
        None,
        metavar="IMAGE",
        help="Name, tag or alias of an image: tf-2.2-cpu-debian, 2.2-gpu, 'TensorFlow 2.2 CPU'. "
        "Cannot be combined with --tf and the other selection options.",
        show_default=False,
        autocompletion=complete(0),
    ),
    tf: list[str] | None = option(
        "--tf VERSION",
        "TensorFlow version, for example 2.2, 2.2.0 or latest; repeatable.",
        autocompletion=complete("tf"),
    ),
    cpu: bool = flag("--cpu", "Select the CPU variant."),
    gpu: bool = flag("--gpu", "Select the GPU variant."),
    stack: str | None = STACK,
    mpi: str | None = option(
        "--mpi FLAVOUR",
        "The MPI: openmpi, intelmpi or no-mpi.",
        autocompletion=lambda: ["openmpi", "intelmpi", "no-mpi"],
    ),
    everything: bool = flag("--all", "Select all images that fit, not only the defaults."),
) -> Selection:
    return Selection(
        tensorflow=tuple(tf or ()),
        cpu=cpu,
        gpu=gpu,
        stack=stack,
        mpi=mpi,
        everything=everything,
        names=tuple(images or ()),
    )


def takes_selection(*, without: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the selection options to a command.

    The command gets the result as its parameter ``selection``. Typer reads options from the
    signature, so the decorator adds them to the signature, except the parameters in ``without``.
    """
    every = inspect.signature(_selection).parameters
    shared = [parameter for name, parameter in every.items() if name not in without.split()]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters.values()
        parameters = []
        for parameter in (*shared, *own):
            if parameter.name != "selection":
                keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                parameters.append(keyword)

        @functools.wraps(command)
        def run(**values: Any) -> None:  # noqa: ANN401 - what Typer parsed
            selecting = {name: values.pop(name, False) for name in every}
            selection = _selection(**selecting)
            command(selection=selection, **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
