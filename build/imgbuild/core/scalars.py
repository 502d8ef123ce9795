"""The scalar types of the matrix and the settings.

Every value that can reach a Dockerfile line or a shell word has one of these types. They do not
allow white space, quotes, ``$``, ``;``, back-quotes, parentheses or line ends. Values from YAML and
the command line therefore cannot break out, and need no escaping. The only exception is
`VariableValue`, which is quoted where it is written.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

from packaging.requirements import Requirement as ParsedRequirement
from packaging.specifiers import SpecifierSet
from pydantic import AfterValidator, BeforeValidator, ValidationError, WithJsonSchema

from imgbuild.core.text import printable, without_logins


def _pattern(
    regex: str, what: str, parse: Callable[[str], object] = str
) -> tuple[AfterValidator, WithJsonSchema]:
    """Return the validator and the JSON Schema of a string that fully matches ``regex``.

    ``parse`` is the parser that later reads the value; it raises ``ValueError`` for a bad value.
    """
    compiled = re.compile(regex)
    parse_once = lru_cache(maxsize=1024)(parse)  # wheels share many requirements

    def check(value: str) -> str:
        if "@" in value and value != without_logins(value):  # not quoted, because it is a secret
            raise ValueError(f"an address with a login is not {what}; put logins in a netrc file")
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} is not {what}")
        try:
            parse_once(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is not {what}") from error
        return value

    schema = {"type": "string", "pattern": f"^(?:{regex})$", "description": what}
    return AfterValidator(check), WithJsonSchema(schema)


def refusal_reason(error: ValidationError) -> str:
    """Return why the first value was refused, without pydantic's prefix."""
    return error.errors()[0]["msg"].removeprefix("Value error, ")


def _parse_time(value: str) -> None:
    """Refuse invalid times, and times that zip archives cannot store (before 1980, after 2107)."""
    when = datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    if not 1980 <= when.year <= 2105:
        raise ValueError(value)


def _check_printable(value: str) -> None:
    """Refuse control characters, line ends and characters that change the direction of text."""
    if value != printable(value):
        raise ValueError(value)


def _check_repository(value: str) -> str:
    """Refuse a repository with an invalid port, or with a wrong name for Docker Hub."""
    host, _, path = value.partition("/")
    name, _, port = host.partition(":")
    if port and not 0 < int(port) <= 65535:
        raise ValueError(f"{value!r} has an invalid port; allowed: 1 to 65535")
    if name in {"registry-1.docker.io", "index.docker.io"}:
        raise ValueError(f"{value!r} is another name of Docker Hub; write docker.io/USER/NAME")
    if name == "docker.io" and path.count("/") != 1:
        raise ValueError(f"{value!r} is not a Docker Hub repository; write docker.io/USER/NAME")
    return value


#: Has no leading zeros, because 010.1 would be another spelling of 10.1.
_NUMBER = "(0|[1-9][0-9]*)"
Version = Annotated[
    str,
    *_pattern(
        rf"{_NUMBER}([-+~.][0-9A-Za-z]+)*",
        "a version; allowed: digits and dots, such as 2.2.0 or 2.4.8-1+cuda10.1",
    ),
]
Compiler = Annotated[
    str,
    *_pattern(
        rf"(clang-)?{_NUMBER}(\.[0-9]+)+",
        "a compiler's version, such as 9.3.1 of g++ or clang-17.0.2",
    ),
]
Release = Annotated[
    str,
    *_pattern(
        rf"{_NUMBER}(\.{_NUMBER}){{2}}",
        "a release of three numbers, such as 2.2.0",
    ),
]
HorovodRelease = Annotated[
    str,
    *_pattern(
        rf"{_NUMBER}(\.{_NUMBER}){{2}}(\+imgbuild\.[1-9][0-9]?)?",
        "a release of three numbers, such as 0.28.1, or with our patches 0.28.1+imgbuild.1",
    ),
]
Name = Annotated[
    str,
    *_pattern(
        r"[a-z0-9]+([-.][a-z0-9]+)*",
        "a name; allowed: lower-case letters, digits, '-' and '.', such as openmpi-4.1.4",
    ),
]
Sha256 = Annotated[
    str, *_pattern(r"[0-9a-f]{64}", "a sha256; allowed: 64 lower-case hexadecimal digits")
]
# The last part becomes a file name in a --mount of the Dockerfiles, so "," and "=" would start an
# option.
Url = Annotated[
    str,
    *_pattern(
        r"https?://[A-Za-z0-9.-]+(:[0-9]+)?/([A-Za-z0-9._~/%+,=?@-]*/)?"
        r"[A-Za-z0-9_][A-Za-z0-9._+-]*",
        "the URL of a file; allowed: http or https, letters, digits and ._~/%+,=?@- after the "
        "host, and at the end a file name of letters, digits and ._+-",
    ),
]
#: The path is optional and does not have to end with a file name.
SiteUrl = Annotated[
    str,
    *_pattern(
        r"https?://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~/%+,=?@-]*)?",
        "the URL of a site; allowed: http or https, a host, then letters, digits and ._~/%+,=?@-",
    ),
]
AptPackage = Annotated[
    str, *_pattern(r"[a-z0-9][a-z0-9+.-]+", "a Debian package name, such as libopenmpi-dev")
]
AptChoice = Annotated[
    str,
    *_pattern(
        r"[a-z0-9][a-z0-9+.-]+(=[0-9A-Za-z.+:~-]+\*?)?",
        "a package of the system's archive, such as libsndfile1 or git=1:2.39.*",
    ),
]
AptPin = Annotated[
    str,
    *_pattern(
        r"[a-z0-9][a-z0-9+.-]+=[0-9A-Za-z.+:~-]+\*?",
        "a pinned Debian package; allowed: NAME=VERSION, VERSION may end in '*'",
    ),
]
_IMAGE_NAME = r"([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
Repository = Annotated[
    str, *_pattern(_IMAGE_NAME, "an image repository, such as imgbuild/tensorflow")
]
# Engines and registries accept names of at most 255 characters.
_NAME_AND_TAG = rf"(?![^@]{{256,}}:[^:@]*(@|$)){_IMAGE_NAME}:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}"
ImageTag = Annotated[
    str,
    *_pattern(
        _NAME_AND_TAG,
        "the name of an image with its tag, such as me/train:1, of at most 255 and 128 characters",
    ),
]
ImageReference = Annotated[
    str,
    *_pattern(
        rf"{_NAME_AND_TAG}(@sha256:[0-9a-f]{{64}})?|[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{{64}}",
        "an image by tag or digest, such as registry.example.org/ml/tensorflow:2.2-cpu",
    ),
]
DigestReference = Annotated[
    str,
    *_pattern(
        r"[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}",
        "an image by digest; allowed: REPOSITORY@sha256:DIGEST, since a tag can change",
    ),
]
RegistryPrefix = Annotated[
    str,
    *_pattern(
        r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*",
        "a registry, such as registry.example.org:5000/mirror",
    ),
]
PublishingRepository = Annotated[
    str,
    *_pattern(
        # Sources: the OCI distribution specification for <name>, Docker's grammar for hosts.
        r"(?=.{1,255}$)((localhost|[a-z0-9-]+(\.[a-z0-9-]+)+)(:[0-9]{1,5})?|[a-z0-9-]+:[0-9]{1,5})"
        r"(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+",
        "HOST[:PORT]/REPOSITORY without a tag, in lower case, such as "
        "registry.example.org:5000/ml/tf",
    ),
    AfterValidator(_check_repository),
]
FileName = Annotated[
    str,
    *_pattern(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", "a file name; allowed: letters, digits and ._+-"),
]
KeyFingerprint = Annotated[
    str,
    *_pattern(r"[0-9A-F]{40}", "a key's fingerprint; allowed: 40 upper-case hexadecimal digits"),
]
Alias = Annotated[
    str,
    *_pattern(
        r"[A-Za-z0-9.]+([_-][A-Za-z0-9.]+)*",
        "an image's other name; allowed: letters, digits and ._-, such as TensorFlow-2.2-GPU",
    ),
]
Capability = Annotated[
    str, *_pattern(rf"{_NUMBER}\.[0-9]", "a GPU's compute capability, such as 7.0")
]
_PROJECT = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_RANGE = r"(==|!=|<=|>=|<|>|~=)[0-9][0-9A-Za-z.*+]*(,(==|!=|<=|>=|<|>|~=)[0-9][0-9A-Za-z.*+]*)*"
Distribution = Annotated[str, *_pattern(_PROJECT, "a Python distribution name, such as h5py")]
Specifier = Annotated[
    str, *_pattern(_RANGE, "a version range, such as <3 or >=1.10,<2", SpecifierSet)
]
Requirement = Annotated[
    str,
    *_pattern(_PROJECT + _RANGE, "a requirement, such as h5py<3 or pip==21.3.1", ParsedRequirement),
]
Timestamp = Annotated[
    str,
    *_pattern(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
        "a UTC time from 1980 to 2105, such as 2026-11-01T00:00:00Z",
        _parse_time,
    ),
]
Snapshot = Annotated[
    str,
    *_pattern(
        r"[0-9]{8}T[0-9]{6}Z",
        "the time of a snapshot in UTC, such as 20261101T000000Z",
        lambda value: datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC),
    ),
]
AbsolutePath = Annotated[
    str, *_pattern(r"/[A-Za-z0-9._@+/-]*", "an absolute path of letters, digits and ._@+/-")
]
SigningKey = Annotated[
    str,
    *_pattern(
        r"(/|[a-z0-9]+://)[A-Za-z0-9._@+/:-]*", "a key: an absolute path, or a KMS's address"
    ),
]
#: ssh:// is not supported, because buildx and docker-py would start ssh for every request.
NO_SSH = (
    "ssh:// cannot be used; forward the engine's socket, `ssh -nNT -L "
    "/tmp/engine.sock:/var/run/docker.sock HOST`, and name unix:///tmp/engine.sock"
)
Copied = Annotated[
    str,
    *_pattern(
        r"(?!/|.*(^|/)\.\.(/|:))[A-Za-z0-9._@+/-]+:/[A-Za-z0-9._@+/-]*",
        "SOURCE:TARGET, such as src:/opt/app; allowed: letters, digits and ._@+/-, a source below "
        "the current folder, and an absolute target",
    ),
]
ImageUser = Annotated[
    str,
    *_pattern(
        r"([a-z_][a-z0-9_-]*|[0-9]{1,9})(:([a-z_][a-z0-9_-]*|[0-9]{1,9}))?",
        "a user, or user and group, by name or number, such as 1000 or 1000:1000",
    ),
]
Variable = Annotated[
    str, *_pattern(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name, such as NCCL_DEBUG")
]
#: The only type that allows quotes and "$"; imgbuild.extend.extended quotes the values.
VariableValue = Annotated[
    str,
    *_pattern(
        r"[^\x00-\x1f\x7f]*",
        "a variable's value (no line ends or control characters)",
        _check_printable,
    ),
]
EngineHost = Annotated[
    str,
    *_pattern(
        r"(unix:///[A-Za-z0-9._@+/-]+|(tcp|https?)://[A-Za-z0-9._@:/-]+)",
        f"an engine address, such as unix:///var/run/docker.sock; {NO_SSH}",
    ),
]
#: Follows the rules of buildx for builder names.
BuilderName = Annotated[
    str, *_pattern(r"[A-Za-z][A-Za-z0-9._-]{0,62}", "a builder's name, as in `docker buildx ls`")
]
#: Text for people: ``imgbuild show`` prints it, and no Dockerfile or command contains it.
Prose = Annotated[
    str, *_pattern(r"[^\x00-\x1f\x7f]+", "one line of text (no line ends or control characters)")
]


#: Plausible sizes of an image; a smaller or larger number is probably in GB or bytes.
_SMALLEST_MB, _LARGEST_MB = 10, 50_000


def _parse_megabytes(value: object) -> int:
    """Return a size in MB as a number; scalars from YAML are text."""
    text = str(value)
    if re.fullmatch(r"[1-9][0-9]{1,4}", text) and _SMALLEST_MB <= int(text) <= _LARGEST_MB:
        return int(text)
    raise ValueError(
        f"{text!r} is not an image's size in MB; allowed: whole numbers from {_SMALLEST_MB} to "
        f"{_LARGEST_MB} (1 MB is 1 000 000 bytes)"
    )


#: A size in decimal megabytes, the unit that engines show.
Megabytes = Annotated[
    int,
    BeforeValidator(_parse_megabytes),
    WithJsonSchema({"type": "integer", "minimum": _SMALLEST_MB, "maximum": _LARGEST_MB}),
]
