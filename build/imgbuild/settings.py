"""``imgbuild.local.yaml``: where this machine takes its inputs from. Never part of the matrix."""

from collections.abc import Iterable
from contextlib import suppress
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

from imgbuild import scalars
from imgbuild.errors import InputError
from imgbuild.files import write_text
from imgbuild.text import duration_text, parse_duration
from imgbuild.user_folders import cache_dir
from imgbuild.yaml_file import ModelT, Section, load_model

#: What buildx calls the builder of the engine that DOCKER_HOST names.
ENGINES_OWN = "default"

Seconds = Annotated[
    float,
    BeforeValidator(lambda value: parse_duration(str(value))),
    PlainSerializer(duration_text),
]


class EngineSettings(Section):
    """Which engine builds. ``None`` means: the Docker client's own choice.

    ``step_timeout`` is how long a step of a build may run (``30m``; 0: for ever), in seconds.
    ``builder`` are buildx's builders that build for the engine, in place of its own BuildKit.
    """

    host: scalars.EngineHost | None = None
    buildx: scalars.AbsolutePath | None = None
    #: Far longer than any step of the matrix takes on a slow machine: compiling takes minutes.
    step_timeout: Seconds = 3600.0
    builder: scalars.BuilderName | tuple[scalars.BuilderName, ...] | None = None

    @property
    def builders(self) -> tuple[str, ...]:
        """The builders' names; without any it is the engine's own."""
        named = (self.builder,) if isinstance(self.builder, str) else self.builder
        return named or (ENGINES_OWN,)


class BootstrapBase(Section):
    """The base image is made here, from the distribution's archive, by mmdebstrap."""

    source: Annotated[Literal["bootstrap"], Field(alias="from")] = "bootstrap"


class RegistryBase(Section):
    """The base image is pulled, by digest."""

    source: Annotated[Literal["registry"], Field(alias="from")]
    image: scalars.DigestReference


class LayoutBase(Section):
    """The base image is an OCI layout on this machine, as ``imgbuild fetch`` writes it."""

    source: Annotated[Literal["layout"], Field(alias="from")]
    path: scalars.AbsolutePath


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
        return {one: f"{site}/{one}/{self.snapshot}" for one in (name, f"{name}-security")}


def _whole_mirror(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


#: A URL alone stands for a mirror without a key of its own.
AnyMirror = Annotated[Mirror, BeforeValidator(_whole_mirror)]


class StandIn(Section):
    """The upstreams are stand-ins: images are for tests and cannot be pushed.

    ``versions`` are their true versions by component, which the suites expect in place of the pins.
    """

    note: scalars.Prose
    versions: dict[scalars.Name, scalars.Version] = Field(default_factory=dict)


Base = Annotated[BootstrapBase | RegistryBase | LayoutBase, Field(discriminator="source")]
Interpreter = Annotated[SourceInterpreter | PrefixInterpreter, Field(discriminator="source")]


class PublishingSettings(Section):
    """Where images are published, and how often a failing registry is tried.

    Between two tries a random time passes, of at most ``first_wait`` seconds, which doubles.
    """

    repository: scalars.PublishingRepository | None = None
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    first_wait: Annotated[float, Field(ge=0, le=60)] = 1.0


class VerifySettings(Section):
    """Whose signatures images from registries must have: a public key's, or an identity's."""

    key: scalars.SigningKey | None = None
    identity: scalars.Prose | None = None
    issuer: scalars.SiteUrl | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.identity is None) != (self.issuer is None) or (self.key and self.identity):
            raise ValueError("give key alone, or identity and issuer together")
        return self


class Settings(Section):
    """The content of ``imgbuild.local.yaml``; without the file all are defaults."""

    engine: EngineSettings = EngineSettings()
    base: dict[str, Base] = Field(default_factory=dict)
    cpython: dict[scalars.Release, Interpreter] = Field(default_factory=dict)
    ca_bundle: scalars.AbsolutePath | None = None
    #: Login data for mirrors, in the format of ``netrc``; reaches builds as a secret only.
    netrc: scalars.AbsolutePath | None = None
    #: Other sites for the matrix's upstreams, by name.
    mirrors: dict[scalars.Name, AnyMirror] = Field(default_factory=dict)
    #: The registry (and path) that base images are pulled from, in place of their own.
    registry: scalars.RegistryPrefix | None = None
    #: Other content under the name of a download, by its file name.
    substitutes: dict[scalars.FileName, scalars.Sha256] = Field(default_factory=dict)
    standin: StandIn | None = None
    publishing: PublishingSettings = PublishingSettings()
    #: With it, what registries give must be signed.
    verify: VerifySettings = VerifySettings()
    #: The base images of registries in whose place this machine makes its own: `remember_made`.
    _made_here: frozenset[str] = PrivateAttr(frozenset())

    def base_for(self, os_name: str, image: str | None = None) -> Base:
        """Return where the base image of an operating system comes from.

        ``image`` is the matrix's own reference by digest, if it has one.
        """
        if os_name in self.base:
            return self.base[os_name]
        reference = f"{self.registry}/{image}" if self.registry else image
        if image is None or reference in self._made_here:
            return BootstrapBase()
        return RegistryBase.model_validate({"from": "registry", "image": reference})

    def with_builders(self, names: tuple[str, ...]) -> "Settings":
        """Return the settings with the builders of ``--builder``, if any, in place of their own.

        InputError: buildx has no builder of such a name.
        """
        if not names:
            return self
        for name in names:
            _of_option(f"--builder {name}", EngineSettings, {"builder": name})
        engine = self.engine.model_copy(update={"builder": names})
        return self.model_copy(update={"engine": engine})

    def with_made(self, *references: str) -> "Settings":
        """Return the settings with these base images, too, made here."""
        settings = self.model_copy()
        settings._made_here = self._made_here.union(references)  # noqa: SLF001
        return settings

    def forget_made(self) -> "Settings":
        """Return the settings without such base images; this and later commands ask registries."""
        settings = self.model_copy()
        settings._made_here = frozenset()  # noqa: SLF001
        settings.remember_made()
        return settings

    def remember_made(self) -> None:
        """Let later commands with this cache make these base images, and ask nobody for them."""
        write_text(_made_here_file(), "".join(f"{one}\n" for one in sorted(self._made_here)))

    def interpreter_for(self, version: str) -> Interpreter:
        return self.cpython.get(version, SourceInterpreter())


def _of_option(option: str, model: type[ModelT], values: dict[str, object]) -> ModelT:
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
        named[name] = _of_option(f"--mirror {name}", Mirror, {"url": url})
    settings = settings.model_copy(update={"mirrors": named})
    with suppress(OSError, UnicodeError):
        return settings.with_made(*_made_here_file().read_text("utf-8").split())
    return settings


def _made_here_file() -> Path:
    return cache_dir() / "base" / "made-here"
