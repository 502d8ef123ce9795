"""``imgbuild.local.yaml``: the sources of this machine's inputs. It is never part of the matrix.

`make derived` writes the table of settings in ``docs/reference.md`` from the fields. If a field has
no default value, the text after ``Default:`` says what happens without the key.
"""

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from imgbuild.core import scalars
from imgbuild.core.errors import InputError
from imgbuild.core.files import write_text
from imgbuild.core.text import duration_text, parse_duration
from imgbuild.core.user_folders import cache_dir
from imgbuild.core.yaml_file import ModelT, Section, load_model

#: buildx's name for the builder of the engine that DOCKER_HOST names.
ENGINES_OWN = "default"

Seconds = Annotated[
    float,
    BeforeValidator(lambda value: parse_duration(str(value))),
    PlainSerializer(duration_text),
]


class EngineSettings(Section):
    """The engine that builds. ``None`` leaves the choice to the Docker client."""

    host: scalars.EngineHost | None = Field(
        default=None,
        description="Address of the engine, for example `unix:///run/imgbuild/docker.sock`. "
        "`ssh://` is not supported: forward the socket instead. "
        "Default: `DOCKER_HOST`, the Docker context, Docker's socket.",
    )
    buildx: scalars.AbsolutePath | None = Field(
        default=None,
        description="Path of a `docker-buildx` program. "
        "Default: Docker's plugin folders, then `PATH`.",
    )
    builder: scalars.BuilderName | tuple[scalars.BuilderName, ...] | None = Field(
        default=None,
        description="A [builder](farm.md) of `docker buildx`, or a list; `--builder` takes "
        "precedence. Default: the engine's own BuildKit.",
    )
    #: Seconds. Every step of the matrix takes far less, even on a slow machine.
    step_timeout: Seconds = Field(
        default=3600.0,
        description="Limit of one build step (`30m`; `0`: none); `--step-timeout` takes "
        "precedence.",
    )

    @property
    def builders(self) -> tuple[str, ...]:
        """The names of the builders; by default, only the engine's own."""
        named = (self.builder,) if isinstance(self.builder, str) else self.builder
        return named or (ENGINES_OWN,)


class BaseSetting(Section):
    """The source of a base image: mmdebstrap on this machine, a registry, or an OCI layout."""

    source: Annotated[Literal["bootstrap", "registry", "layout"], Field(alias="from")]
    image: scalars.DigestReference | None = None
    path: scalars.AbsolutePath | None = None

    @model_validator(mode="after")
    def _has_its_place(self) -> Self:
        if (self.image is not None) != (self.source == "registry"):
            raise ValueError("`from: registry` requires `image`, and no other source allows it")
        if (self.path is not None) != (self.source == "layout"):
            raise ValueError("`from: layout` requires `path`, and no other source allows it")
        return self


def base_setting(source: str, **place: str) -> BaseSetting:
    return BaseSetting.model_validate({"from": source, **place})


class SourceInterpreter(Section):
    """A CPython that a separate stage compiles from its pinned source."""

    source: Annotated[Literal["source"], Field(alias="from")] = "source"


class PrefixInterpreter(Section):
    """A CPython from a prefix on this machine, for example of pyenv or a local build."""

    source: Annotated[Literal["prefix"], Field(alias="from")]
    path: scalars.AbsolutePath


def local_prefix(path: Path) -> PrefixInterpreter:
    return PrefixInterpreter.model_validate({"from": "prefix", "path": str(path)})


class Mirror(Section):
    """The replacement of one upstream of the matrix.

    ``url`` replaces the whole URL of the upstream. If the mirror signs its own index, ``keyring``
    replaces the signing key with a binary OpenPGP keyring, as apt reads it. With ``snapshot``, a
    time, ``url`` is the address of a snapshot service with the layout of Debian's.
    """

    url: scalars.SiteUrl
    keyring: scalars.AbsolutePath | None = None
    snapshot: scalars.Snapshot | None = None

    def addresses(self, name: str) -> dict[str, str]:
        """Return the URLs that apt reads instead of ``name``, by the names of the archives."""
        if not self.snapshot:
            return {name: self.url}
        site = f"{self.url.rstrip('/')}/archive"
        return {
            archive: f"{site}/{archive}/{self.snapshot}" for archive in (name, f"{name}-security")
        }


def _whole_mirror(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


#: A plain URL is a mirror without its own key.
AnyMirror = Annotated[Mirror, BeforeValidator(_whole_mirror)]


class StandIn(Section):
    """The marker for stand-ins as upstreams; their images are for tests and cannot be pushed."""

    note: scalars.Prose = Field(
        description="Marks all inputs as stand-ins, for tests "
        "([README](../tests/standin/README.md)). Default: not set.",
    )
    versions: dict[scalars.Name, scalars.Version] = Field(
        default_factory=dict,
        description="Versions of the stand-ins, which the suites expect instead of the pins. "
        "Default: the pins.",
        title="standin.versions.COMPONENT",
    )


Interpreter = Annotated[SourceInterpreter | PrefixInterpreter, Field(discriminator="source")]


class PublishingSettings(Section):
    """The repository for published images, and the retries for a failing registry."""

    repository: scalars.PublishingRepository | None = Field(
        default=None,
        description="`HOST[:PORT]/REPOSITORY` for published images. Default: `--to` and `--from`.",
    )
    attempts: int = Field(
        default=5, ge=1, le=20, description="Number of tries if a registry fails."
    )
    first_wait: float = Field(
        default=1.0,
        ge=0,
        le=60,
        description="Longest pause before the second try, in seconds. It doubles with each try, up "
        "to a minute. Each pause is random up to that limit.",
    )


class VerifySettings(Section):
    """The required signer of images from registries: a public key or an identity."""

    key: scalars.SigningKey | None = Field(
        default=None,
        description="cosign public key, as an absolute path or the address of a KMS. It must have "
        "signed every image that this machine did not build (`build --pull`, `extend`, `run`).",
    )
    identity: scalars.Prose | None = Field(
        default=None, description="Identity of the signer, for keyless signatures."
    )
    issuer: scalars.SiteUrl | None = Field(
        default=None, description="OIDC issuer that vouches for the identity."
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.identity is None) != (self.issuer is None) or (self.key and self.identity):
            raise ValueError("use either key, or identity and issuer together")
        return self


class Settings(Section):
    """The content of ``imgbuild.local.yaml``; without the file, the defaults."""

    engine: EngineSettings = EngineSettings()
    base: dict[str, BaseSetting] = Field(
        default_factory=dict,
        description="`{from: bootstrap}`, `{from: registry, image: NAME@sha256:DIGEST}` or "
        "`{from: layout, path: /an/OCI/layout}`. "
        "Default: the matrix's image by digest. If no registry answers, `doctor --write` builds "
        "the Debian base image.",
        title="base.OS",
    )
    cpython: dict[scalars.Release, Interpreter] = Field(
        default_factory=dict,
        description="`{from: source}` or `{from: prefix, path: /opt/python/3.6.15}`. "
        "Default: source.",
        title="cpython.VERSION",
    )
    ca_bundle: scalars.AbsolutePath | None = Field(
        default=None,
        description="Path of a PEM file with the CA certificates for downloads and builds. "
        "Default: the system's certificates.",
    )
    netrc: scalars.AbsolutePath | None = Field(
        default=None,
        description="Path of a netrc file with logins for mirrors. Builds get it only as a secret. "
        "Default: no login.",
    )
    mirrors: dict[scalars.Name, AnyMirror] = Field(
        default_factory=dict,
        description="A URL, or `{url: …, keyring: …}` "
        "([mirrors](mirrors.md)). For `debian`, `snapshot: "
        "20261101T000000Z` uses the archives of that time from the snapshot service at `url` "
        "([snapshots](snapshot.md)). Default: the matrix's site.",
        title="mirrors.UPSTREAM",
    )
    registry: scalars.RegistryPrefix | None = Field(
        default=None,
        description="Prefix for the names of base images, for example "
        "`registry.example.org/hub`. Default: none.",
    )
    substitutes: dict[scalars.FileName, scalars.Sha256] = Field(
        default_factory=dict,
        description="sha256 of another file that replaces a download of this name. The image's "
        "labels record it. Default: the matrix's.",
        title="substitutes.FILE",
    )
    publishing: PublishingSettings = PublishingSettings()
    verify: VerifySettings = VerifySettings()
    standin: StandIn | None = None
    #: Base images from registries that this machine replaces by its own.
    _made_here: frozenset[str] = PrivateAttr(frozenset())

    def base_for(self, os_name: str, image: str | None = None) -> BaseSetting:
        """Return the source of an operating system's base image.

        ``image`` is the matrix's reference by digest, if it has one.
        """
        if os_name in self.base:
            return self.base[os_name]
        reference = f"{self.registry}/{image}" if self.registry else image
        if reference is None or image is None or reference in self._made_here:
            return base_setting("bootstrap")
        return base_setting("registry", image=reference)

    def with_builders(self, names: tuple[str, ...]) -> "Settings":
        """Return the settings with the builders of ``--builder``, if the option was used.

        InputError: a name is not a valid name for a builder.
        """
        if not names:
            return self
        for name in names:
            _parse_option(f"--builder {name}", EngineSettings, {"builder": name})
        engine = self.engine.model_copy(update={"builder": names})
        return self.model_copy(update={"engine": engine})

    def remember_made(self, references: frozenset[str]) -> "Settings":
        """Return the settings that replace exactly these base images by images made here.

        Later commands that use this cache do the same, and do not ask a registry for them.
        """
        write_text(_made_here_file(), "".join(f"{name}\n" for name in sorted(references)))
        return self._with_made(references)

    @property
    def made_here(self) -> frozenset[str]:
        return self._made_here

    def recall_made(self) -> "Settings":
        """Return the settings with the base images that `remember_made` wrote down."""
        try:
            references = frozenset(_made_here_file().read_text("utf-8").split())
        except (OSError, UnicodeError):
            return self
        return self._with_made(references)

    def _with_made(self, references: frozenset[str]) -> "Settings":
        settings = self.model_copy()
        settings._made_here = references  # noqa: SLF001 - same class
        return settings

    def interpreter_for(self, version: str, machine: str) -> Interpreter:
        """Return where CPython comes from for images of a machine, for example ``aarch64``.

        A prefix on this machine is only for images of this machine's own architecture.
        """
        if machine != platform.machine():
            return SourceInterpreter()
        return self.cpython.get(version, SourceInterpreter())


def _parse_option(option: str, model: type[ModelT], values: dict[str, object]) -> ModelT:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{option}: {scalars.refusal_reason(error)}.") from None


def load_settings(path: Path, mirrors: Iterable[str] = ()) -> Settings:
    """Return the settings in ``path``, or the defaults if the file does not exist.

    ``mirrors``, each as ``NAME=URL``, override the mirrors of the file. The result includes the
    base images that `remember_made` wrote down.

    InputError: the file is invalid (each fault with its line), or a mirror is.
    """
    settings = load_model(path, Settings) if path.exists() else Settings()
    named = {**settings.mirrors}
    for word in mirrors:
        name, separator, url = word.partition("=")
        if not name or not separator:
            raise InputError(f"--mirror {word}: use NAME=URL, for example ubuntu=http://m/ubuntu.")
        named[name] = _parse_option(f"--mirror {name}", Mirror, {"url": url})
    return settings.model_copy(update={"mirrors": named}).recall_made()


def _made_here_file() -> Path:
    return cache_dir() / "base" / "made-here"
