"""``imgbuild.local.yaml``: where this machine takes its inputs from. Never part of the matrix."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)

from imgbuild.errors import InputError
from imgbuild.project import SETTINGS_VARIABLE
from imgbuild.scalars import (
    AbsolutePath,
    DigestReference,
    EngineHost,
    FileName,
    Name,
    Prose,
    PublishingRepository,
    PythonVersion,
    RegistryPrefix,
    Sha256,
    SiteUrl,
    Version,
)
from imgbuild.text import parse_duration
from imgbuild.yaml_file import Section, load_model

#: Mirrors of the command line, as words NAME=URL: ``imgbuild --mirror`` sets it.
MIRRORS_VARIABLE = "IMGBUILD_MIRRORS"


def _seconds(value: Any) -> float | None:  # noqa: ANN401 - whatever YAML holds
    return None if value is None else parse_duration(str(value))


class EngineSettings(Section):
    """Which engine builds. ``None`` means: the Docker client's own choice.

    ``step_timeout`` is how long a step of a build may run (``30m``; 0: for ever), in seconds.
    """

    host: EngineHost | None = None
    buildx: AbsolutePath | None = None
    step_timeout: Annotated[float | None, BeforeValidator(_seconds)] = None


class BootstrapBase(Section):
    """The base image is made here, from the distribution's archive, by mmdebstrap."""

    source: Annotated[Literal["bootstrap"], Field(alias="from")] = "bootstrap"


class RegistryBase(Section):
    """The base image is pulled, by digest."""

    source: Annotated[Literal["registry"], Field(alias="from")]
    image: DigestReference


class LayoutBase(Section):
    """The base image is an OCI layout on this machine, as ``imgbuild fetch`` writes it."""

    source: Annotated[Literal["layout"], Field(alias="from")]
    path: AbsolutePath


class SourceInterpreter(Section):
    """CPython is compiled from its pinned source in a stage of its own."""

    source: Annotated[Literal["source"], Field(alias="from")] = "source"


class PrefixInterpreter(Section):
    """CPython is taken from a prefix of this machine (pyenv, an own build)."""

    source: Annotated[Literal["prefix"], Field(alias="from")]
    path: AbsolutePath


class Mirror(Section):
    """The replacement of one upstream of the matrix.

    ``url`` replaces the upstream's whole URL; ``keyring`` its signing key, where a mirror signs
    its own index (a binary OpenPGP keyring, the kind apt reads).
    """

    url: SiteUrl
    keyring: AbsolutePath | None = None


def _mirror_spelled_out(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    return {"url": value} if isinstance(value, str) else value


AnyMirror = Annotated[Mirror, BeforeValidator(_mirror_spelled_out)]


class StandIn(Section):
    """The upstreams are stand-ins: images are for tests and cannot be pushed.

    ``versions`` are their true versions by component, which the suites expect in place of the pins.
    """

    note: Prose
    versions: dict[Name, Version] = Field(default_factory=dict)


Base = Annotated[BootstrapBase | RegistryBase | LayoutBase, Field(discriminator="source")]
Interpreter = Annotated[SourceInterpreter | PrefixInterpreter, Field(discriminator="source")]


class PublishingSettings(Section):
    """Where images are published, and how often a failing registry is tried.

    Between two tries a random time passes, of at most ``first_wait`` seconds, which doubles.
    """

    repository: PublishingRepository | None = None
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    first_wait: Annotated[float, Field(ge=0, le=60)] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _without_compression(cls, value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
        """Read what `doctor --write` of earlier versions wrote; ``gzip`` is what engines do."""
        if not isinstance(value, dict) or "compression" not in value:
            return value
        if value["compression"] != "gzip":
            raise ValueError(
                "compression is no longer an option: the engine packs layers with gzip. Remove "
                "the key; skopeo copy --dest-compress-format zstd makes a copy with zstd"
            )
        return {key: kept for key, kept in value.items() if key != "compression"}


class Settings(Section):
    """The content of ``imgbuild.local.yaml``; without the file all are defaults."""

    engine: EngineSettings = EngineSettings()
    base: dict[str, Base] = Field(default_factory=dict)
    cpython: dict[PythonVersion, Interpreter] = Field(default_factory=dict)
    ca_bundle: AbsolutePath | None = None
    #: Login data for mirrors, in the format of ``netrc``; reaches builds as a secret only.
    netrc: AbsolutePath | None = None
    #: Other sites for the matrix's upstreams, by name.
    mirrors: dict[Name, AnyMirror] = Field(default_factory=dict)
    #: The registry (and path) that base images are pulled from, in place of their own.
    registry: RegistryPrefix | None = None
    #: Other content under the name of a download, by its file name.
    substitutes: dict[FileName, Sha256] = Field(default_factory=dict)
    standin: StandIn | None = None
    publishing: PublishingSettings = PublishingSettings()

    def base_for(self, os_name: str, image: str | None = None) -> Base:
        """Return where the base image of an operating system comes from.

        ``image`` is the matrix's own reference by digest, if it has one.
        """
        if os_name in self.base:
            return self.base[os_name]
        if image is None:
            return BootstrapBase()
        reference = f"{self.registry}/{image}" if self.registry else image
        return RegistryBase.model_validate({"from": "registry", "image": reference})

    def interpreter_for(self, version: str) -> Interpreter:
        """Return where one CPython version comes from."""
        return self.cpython.get(version, SourceInterpreter())


def load_settings(path: Path) -> Settings:
    """Return the settings in ``path``, or the defaults if there is no such file.

    Mirrors of ``imgbuild --mirror NAME=URL`` take the place of the file's.

    Raises:
        InputError: the file is not YAML or does not fit; every fault with its line and column. A
            mirror of the command line is no NAME=URL.

    """
    if SETTINGS_VARIABLE in os.environ and not path.exists():
        raise InputError(f"--settings {path}: no such file.")
    settings = load_model(path, Settings) if path.exists() else Settings()
    given = mirrors_of(os.environ.get(MIRRORS_VARIABLE, "").split())
    return settings.model_copy(update={"mirrors": {**settings.mirrors, **given}})


def mirrors_of(words: Iterable[str]) -> dict[str, Mirror]:
    """Return the mirrors that ``NAME=URL`` words name.

    Raises:
        InputError: a word is not of that form, or its URL is none.

    """
    found = {}
    for word in words:
        name, separator, url = word.partition("=")
        if not name or not separator:
            raise InputError(f"--mirror {word}: give NAME=URL, such as ubuntu=http://m/ubuntu.")
        try:
            found[name] = Mirror.model_validate({"url": url})
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise InputError(f"--mirror {name}: {reason}") from None
    return found
