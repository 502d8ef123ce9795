"""``imgbuild.local.yaml``: where this machine takes its inputs from. Never part of the matrix.

`make derived` writes the table of settings in ``docs/reference.md`` from the fields. Words behind
``Default:`` in a description say what happens without the key, if its default is no value.
"""

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

#: The name that buildx gives the builder of the engine that DOCKER_HOST names.
ENGINES_OWN = "default"

Seconds = Annotated[
    float,
    BeforeValidator(lambda value: parse_duration(str(value))),
    PlainSerializer(duration_text),
]


class EngineSettings(Section):
    """Which engine builds. ``None`` means: the Docker client's own choice."""

    host: scalars.EngineHost | None = Field(
        default=None,
        description="The engine's address, such as `unix:///run/imgbuild/docker.sock`; not "
        "`ssh://`, whose socket you forward. "
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
    #: In seconds. Far longer than any step of the matrix takes on a slow machine.
    step_timeout: Seconds = Field(
        default=3600.0,
        description="Limit of one build step (`30m`; `0`: none); `--step-timeout` takes "
        "precedence.",
    )

    @property
    def builders(self) -> tuple[str, ...]:
        """The builders' names; without any it is the engine's own."""
        named = (self.builder,) if isinstance(self.builder, str) else self.builder
        return named or (ENGINES_OWN,)


class BaseSetting(Section):
    """Where a base image comes from: made here by mmdebstrap, a registry, an OCI layout on disk."""

    source: Annotated[Literal["bootstrap", "registry", "layout"], Field(alias="from")]
    image: scalars.DigestReference | None = None
    path: scalars.AbsolutePath | None = None

    @model_validator(mode="after")
    def _has_its_place(self) -> Self:
        if (self.image is not None) != (self.source == "registry"):
            raise ValueError("`image` goes with `from: registry`, and only with it")
        if (self.path is not None) != (self.source == "layout"):
            raise ValueError("`path` goes with `from: layout`, and only with it")
        return self


def base_setting(source: str, **place: str) -> BaseSetting:
    return BaseSetting.model_validate({"from": source, **place})


class SourceInterpreter(Section):
    """CPython is compiled from its pinned source in a stage of its own."""

    source: Annotated[Literal["source"], Field(alias="from")] = "source"


class PrefixInterpreter(Section):
    """CPython is taken from a prefix of this machine (pyenv, an own build)."""

    source: Annotated[Literal["prefix"], Field(alias="from")]
    path: scalars.AbsolutePath


def local_prefix(path: Path) -> PrefixInterpreter:
    return PrefixInterpreter.model_validate({"from": "prefix", "path": str(path)})


class Mirror(Section):
    """The replacement of one upstream of the matrix.

    ``url`` replaces the upstream's whole URL; ``keyring`` its signing key, where a mirror signs
    its own index (a binary OpenPGP keyring, the kind apt reads). With ``snapshot``, a time,
    ``url`` is that of a service with archives as they were, laid out like Debian's.
    """

    url: scalars.SiteUrl
    keyring: scalars.AbsolutePath | None = None
    snapshot: scalars.Snapshot | None = None

    def addresses(self, name: str) -> dict[str, str]:
        """Return the URLs that apt reads in place of ``name``, by the archives' names."""
        if not self.snapshot:
            return {name: self.url}
        site = f"{self.url.rstrip('/')}/archive"
        return {
            archive: f"{site}/{archive}/{self.snapshot}" for archive in (name, f"{name}-security")
        }


def _whole_mirror(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


#: A URL alone stands for a mirror without a key of its own.
AnyMirror = Annotated[Mirror, BeforeValidator(_whole_mirror)]


class StandIn(Section):
    """The upstreams are stand-ins: images are for tests and cannot be pushed."""

    note: scalars.Prose = Field(
        description="Marks all inputs as stand-ins, for tests "
        "([README](../tests/standin/README.md)). Default: not set.",
    )
    versions: dict[scalars.Name, scalars.Version] = Field(
        default_factory=dict,
        description="The versions of stand-ins, which the suites expect in place of the pins. "
        "Default: the pins.",
        title="standin.versions.COMPONENT",
    )


Interpreter = Annotated[SourceInterpreter | PrefixInterpreter, Field(discriminator="source")]


class PublishingSettings(Section):
    """Where images are published, and how often a failing registry is tried."""

    repository: scalars.PublishingRepository | None = Field(
        default=None,
        description="`HOST[:PORT]/REPOSITORY` that images are published to. "
        "Default: `--to` and `--from`.",
    )
    attempts: int = Field(
        default=5, ge=1, le=20, description="How often a failing registry is tried."
    )
    first_wait: float = Field(
        default=1.0,
        ge=0,
        le=60,
        description="The longest pause before the second try, in seconds; doubles, up to a minute. "
        "The pauses are random.",
    )


class VerifySettings(Section):
    """The signer that images from registries must have: a public key or an identity."""

    key: scalars.SigningKey | None = Field(
        default=None,
        description="A public key of cosign, as an absolute path, or the address of a KMS: images "
        "that were not built here must be signed with it (`build --pull`, `extend`, `run`).",
    )
    identity: scalars.Prose | None = Field(
        default=None, description="The same for keyless signatures: who signed."
    )
    issuer: scalars.SiteUrl | None = Field(default=None, description="Who confirmed that identity.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.identity is None) != (self.issuer is None) or (self.key and self.identity):
            raise ValueError("give key alone, or identity and issuer together")
        return self


class Settings(Section):
    """The content of ``imgbuild.local.yaml``; without the file all are defaults."""

    engine: EngineSettings = EngineSettings()
    base: dict[str, BaseSetting] = Field(
        default_factory=dict,
        description="`{from: bootstrap}`, `{from: registry, image: NAME@sha256:DIGEST}` or "
        "`{from: layout, path: /an/OCI/layout}`. "
        "Default: the matrix's image by digest; if no registry answers, `doctor --write` makes "
        "Debian's.",
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
        description="Path of a PEM file that downloads and builds trust. "
        "Default: the system's certificates.",
    )
    netrc: scalars.AbsolutePath | None = Field(
        default=None,
        description="Path of a file with logins for mirrors; builds get it as a secret only. "
        "Default: no login.",
    )
    mirrors: dict[scalars.Name, AnyMirror] = Field(
        default_factory=dict,
        description="A URL, or `{url: …, keyring: …}` "
        "([guide](guide.md#mirrors-logins-no-network)); of `debian` also `snapshot: "
        "20261101T000000Z`, the archives of that time, from the snapshot service at `url` "
        "([guide](guide.md#debian-as-it-was)). Default: the matrix's site.",
        title="mirrors.UPSTREAM",
    )
    registry: scalars.RegistryPrefix | None = Field(
        default=None,
        description="Prefix of the names of base images, such as `registry.example.org/hub`. "
        "Default: none.",
    )
    substitutes: dict[scalars.FileName, scalars.Sha256] = Field(
        default_factory=dict,
        description="The sha256 of another file with the name of a download; the image's labels "
        "say so. Default: the matrix's.",
        title="substitutes.FILE",
    )
    publishing: PublishingSettings = PublishingSettings()
    verify: VerifySettings = VerifySettings()
    standin: StandIn | None = None
    #: The base images of registries in whose place this machine makes its own.
    _made_here: frozenset[str] = PrivateAttr(frozenset())

    def base_for(self, os_name: str, image: str | None = None) -> BaseSetting:
        """Return where the base image of an operating system comes from.

        ``image`` is the matrix's own reference by digest, if it has one.
        """
        if os_name in self.base:
            return self.base[os_name]
        reference = f"{self.registry}/{image}" if self.registry else image
        if reference is None or image is None or reference in self._made_here:
            return base_setting("bootstrap")
        return base_setting("registry", image=reference)

    def with_builders(self, names: tuple[str, ...]) -> "Settings":
        """Return the settings with the builders of ``--builder``, if any, in place of their own.

        InputError: buildx has no builder of such a name.
        """
        if not names:
            return self
        for name in names:
            _parse_option(f"--builder {name}", EngineSettings, {"builder": name})
        engine = self.engine.model_copy(update={"builder": names})
        return self.model_copy(update={"engine": engine})

    def remember_made(self, references: frozenset[str]) -> "Settings":
        """Return the settings with exactly these base images of registries made here instead.

        Later commands with this cache do the same, and ask no registry for them.
        """
        write_text(_made_here_file(), "".join(f"{name}\n" for name in sorted(references)))
        return self._with_made(references)

    @property
    def made_here(self) -> frozenset[str]:
        return self._made_here

    def recall_made(self) -> "Settings":
        """Return the settings with what `remember_made` wrote."""
        try:
            references = frozenset(_made_here_file().read_text("utf-8").split())
        except (OSError, UnicodeError):
            return self
        return self._with_made(references)

    def _with_made(self, references: frozenset[str]) -> "Settings":
        settings = self.model_copy()
        settings._made_here = references  # noqa: SLF001 - of the same class
        return settings

    def interpreter_for(self, version: str) -> Interpreter:
        return self.cpython.get(version, SourceInterpreter())


def _parse_option(option: str, model: type[ModelT], values: dict[str, object]) -> ModelT:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{option}: {scalars.refusal_reason(error)}.") from None


def load_settings(path: Path, mirrors: Iterable[str] = ()) -> Settings:
    """Return the settings in ``path``, or the defaults if there is no such file.

    ``mirrors``, as ``NAME=URL``, take the place of the file's. What `remember_made` wrote counts.

    InputError: the file (each fault with its line) or a mirror does not fit.
    """
    settings = load_model(path, Settings) if path.exists() else Settings()
    named = {**settings.mirrors}
    for word in mirrors:
        name, separator, url = word.partition("=")
        if not name or not separator:
            raise InputError(f"--mirror {word}: give NAME=URL, such as ubuntu=http://m/ubuntu.")
        named[name] = _parse_option(f"--mirror {name}", Mirror, {"url": url})
    return settings.model_copy(update={"mirrors": named}).recall_made()


def _made_here_file() -> Path:
    return cache_dir() / "base" / "made-here"
