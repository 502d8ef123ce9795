"""What a build may know and no layer may hold: authorities, mirrors, login data."""

import hashlib
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.files import write_text
from imgbuild.settings import Settings


def build_secrets(settings: Settings, cache: Path) -> dict[str, Path]:
    """Return the files of the build's secrets by id: ``ca``, ``netrc``, ``upstreams``.

    Raises:
        InputError: a file that the settings name cannot be used.

    """
    found = {
        "ca": _ca_bundle(settings),
        "netrc": _netrc(settings),
        "upstreams": _upstreams(settings, cache),
    }
    return {name: path for name, path in found.items() if path}


def require_files(settings: Settings) -> None:
    """Raise unless the files that the settings name can be used.

    Raises:
        InputError: one cannot.

    """
    _ca_bundle(settings)
    _netrc(settings)


def _ca_bundle(settings: Settings) -> Path | None:
    if settings.ca_bundle is None:
        return None
    path = Path(settings.ca_bundle)
    if not path.is_file() or b"-----BEGIN CERTIFICATE-----" not in path.read_bytes():
        raise InputError(
            f"imgbuild.local.yaml: ca_bundle {path} is not a file of PEM certificates. Correct it, "
            "or take the line out and run `imgbuild doctor --write`."
        )
    return path


def _netrc(settings: Settings) -> Path | None:
    if settings.netrc is None:
        return None
    path = Path(settings.netrc)
    if not path.is_file():
        raise InputError(
            f"imgbuild.local.yaml: netrc {path} is no file. Correct the path, or take it out."
        )
    return path


def _upstreams(settings: Settings, cache: Path) -> Path | None:
    """Write the mirrors as lines ``NAME URL``, which images/files/apt-install reads."""
    if not settings.mirrors:
        return None
    text = "".join(f"{name} {mirror.url}\n" for name, mirror in sorted(settings.mirrors.items()))
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = cache / "contexts" / f"upstreams-{digest[:16]}.txt"
    if not path.exists() or path.read_bytes() != text.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return path
