"""``imgbuild.local.yaml``: where this machine takes its inputs from. Never part of the matrix."""

import netrc
import os
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainSerializer, PrivateAttr, ValidationError

from imgbuild import scalars
from imgbuild.errors import InputError, MachineError
from imgbuild.files import write_text
from imgbuild.project import SETTINGS_VARIABLE, cache_dir
from imgbuild.text import duration_text, parse_duration
from imgbuild.yaml_file import Section, load_model

if TYPE_CHECKING:  # requests takes 0.1 s to import, and a plan needs no network
    from imgbuild.http import Answer, HttpClient

#: Mirrors of the command line, as words NAME=URL: ``imgbuild --mirror`` sets it.
MIRRORS_VARIABLE = "IMGBUILD_MIRRORS"
#: What OpenSSL, requests, curl and pip read, in the order in which one is believed.
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
#: Where distributions keep the bundle that programs use by default.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
)
_TRIES = 3

Seconds = Annotated[
    float | None,
    BeforeValidator(lambda value: value if value is None else parse_duration(str(value))),
    PlainSerializer(duration_text, when_used="unless-none"),
]


class EngineSettings(Section):
    """Which engine builds. ``None`` means: the Docker client's own choice.

    ``step_timeout`` is how long a step of a build may run (``30m``; 0: for ever), in seconds.
    """

    host: scalars.EngineHost | None = None
    buildx: scalars.AbsolutePath | None = None
    step_timeout: Seconds = None


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


class Mirror(Section):
    """The replacement of one upstream of the matrix.

    ``url`` replaces the upstream's whole URL; ``keyring`` its signing key, where a mirror signs
    its own index (a binary OpenPGP keyring, the kind apt reads).
    """

    url: scalars.SiteUrl
    keyring: scalars.AbsolutePath | None = None


#: A URL alone stands for a mirror without a key of its own.
AnyMirror = Annotated[
    Mirror, BeforeValidator(lambda value: {"url": value} if isinstance(value, str) else value)
]


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
    #: `doctor --write` of earlier versions wrote it.
    compression: Annotated[Literal["gzip"], Field(exclude=True)] = "gzip"


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

    def with_made(self, *references: str) -> "Settings":
        """Return the settings with these base images, too, made here."""
        settings = self.model_copy()
        settings._made_here = self._made_here.union(references)  # noqa: SLF001
        return settings

    def remember_made(self) -> None:
        """Let later commands with this cache make these base images, and ask nobody for them."""
        write_text(_made_here_file(), "".join(f"{one}\n" for one in sorted(self._made_here)))

    def interpreter_for(self, version: str) -> Interpreter:
        return self.cpython.get(version, SourceInterpreter())


def load_settings(path: Path, *, new: bool = False) -> Settings:
    """Return the settings in ``path``, or the defaults if there is no such file.

    One that the user names must be there, unless it is a ``new`` one.
    Mirrors of ``imgbuild --mirror NAME=URL`` take the place of the file's; with them goes what
    `remember_made` wrote. InputError: the file (each fault with its line) or a mirror does not fit.
    """
    if os.environ.get(SETTINGS_VARIABLE) and not new and not path.exists():
        raise InputError(f"--settings {path}: no such file.")
    settings = load_model(path, Settings) if path.exists() else Settings()
    mirrors = {**settings.mirrors}
    for word in os.environ.get(MIRRORS_VARIABLE, "").split():
        name, separator, url = word.partition("=")
        if not name or not separator:
            raise InputError(f"--mirror {word}: give NAME=URL, such as ubuntu=http://m/ubuntu.")
        try:
            mirrors[name] = Mirror.model_validate({"url": url})
        except ValidationError as error:
            raise InputError(f"--mirror {name}: {scalars.refusal_reason(error)}.") from None
    settings = settings.model_copy(update={"mirrors": mirrors})
    with suppress(OSError, UnicodeError):
        return settings.with_made(*_made_here_file().read_text("utf-8").split())
    return settings


def _made_here_file() -> Path:
    return cache_dir() / "base" / "made-here"


@dataclass(frozen=True)
class Credentials:
    """A name and password, or a token that stands for both (``identity``); nothing prints it."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The header's value; empty if there is no name."""
        if not self.user:
            return ""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


@dataclass(frozen=True)
class Sites:
    """The matrix's upstreams by name, what replaces them here, and how to speak to them."""

    upstreams: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

    def address(self, url: str) -> str:
        """Return the URL to ask: that of a mirror if ``url`` belongs to a mirrored upstream."""
        inside = {
            _folder(upstream): _folder(mirror.url)
            for name, upstream in self.upstreams.items()
            if (mirror := self.settings.mirrors.get(name))
            and _folder(url).startswith(_folder(upstream))
        }
        if not inside:
            return url
        longest = max(inside, key=len)
        return inside[longest] + url[len(longest) :]

    def login(self, url: str) -> Credentials | None:
        """Return the login of the URL's host, if the netrc file names that host.

        Its ``default`` entry is not used: it would be sent to anyone. InputError: the netrc file
        cannot be read.
        """
        found = self._logins.get(urlsplit(url).hostname or "")
        return Credentials(found[0] or "", found[2] or "") if found else None

    def check_logins(self) -> None:
        """Raise InputError if apt or uv would send a login of the netrc file over plain http."""
        mirrors = (mirror.url for mirror in self.settings.mirrors.values())
        for url in filter(self.login, (*map(self.address, self.upstreams.values()), *mirrors)):
            from imgbuild.http import is_plain  # noqa: PLC0415 - brings requests

            if is_plain(url):
                raise InputError(
                    f"The settings: netrc {self.settings.netrc} has a login for {url}, which is "
                    "plain http, where all can read it. Name the site by https, or remove its "
                    "login from the file."
                )

    @property
    def verify(self) -> str | bool:
        """What TLS is verified with: the settings' CA bundle, the environment's, the system's.

        InputError: the one that was named does not exist.
        """
        named = {"The settings: ca_bundle": self.settings.ca_bundle}
        named |= {name: os.environ.get(name) for name in CA_VARIABLES}
        source, path = next(((name, path) for name, path in named.items() if path), ("", None))
        if path is None:
            return next((str(bundle) for bundle in SYSTEM_BUNDLES if bundle.is_file()), True)
        if not Path(path).exists():
            raise InputError(f"{source} names {path}, which does not exist. Correct or remove it.")
        return path

    def client(self) -> "HttpClient":
        """Return a new client that trusts the CAs and sends the logins of these sites.

        InputError: the CA bundle does not exist, or the netrc file cannot be read.
        """
        from imgbuild.http import HttpClient, RetryPolicy  # noqa: PLC0415 - brings requests

        def login(url: str) -> str:
            return (self.login(url) or Credentials()).basic

        return HttpClient(self.verify, policy=RetryPolicy(_TRIES), login=login)

    def get(self, url: str, *, limit: int = 1 << 24) -> "Answer":
        """Return the answer of ``url`` or of its mirror, read whole; ``limit`` is in bytes.

        MachineError: there is no answer, or only a server error, or more than ``limit``.
        """
        address = self.address(url)
        try:
            return self._client.get(address, limit=limit)
        except MachineError as error:
            raise MachineError(f"{error} {self.advice(address)}") from None

    def advice(self, address: str) -> str:
        """Return what to do about a site that does not give what it should."""
        if any(address.startswith(mirror.url) for mirror in self.settings.mirrors.values()):
            return "That is a mirror of the settings or --mirror: check that it holds the file."
        return "Where this site cannot be reached, name a mirror of it (docs/guide.md)."

    @cached_property
    def _client(self) -> "HttpClient":
        return self.client()

    @cached_property
    def _logins(self) -> Mapping[str, tuple[str, str | None, str | None]]:
        path = self.settings.netrc
        if path is None:
            return {}
        try:
            if Path(path).is_char_device():  # it may have no end
                raise OSError(0, "a device, not a file")  # noqa: TRY301
            return netrc.netrc(path).hosts
        except (netrc.NetrcParseError, UnicodeDecodeError, OSError) as error:
            # The parser's message quotes the token that it stumbled over: it may be a password.
            line = f":{error.lineno}" if isinstance(error, netrc.NetrcParseError) else ""
            fault = error.strerror if isinstance(error, OSError) else "not a netrc file"
            raise InputError(
                f"The settings: netrc {path}{line}: {fault}. It should exist and hold lines "
                "such as `machine mirror.example.org login NAME password SECRET`."
            ) from None


def _folder(url: str) -> str:
    return url.rstrip("/") + "/"
