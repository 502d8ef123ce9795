"""An apt that knows one more suite, in a folder of its own: the machine's apt stays as it is."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from imgbuild.doctor.apt_sources import APT, AptSource

#: Less than any release of one's own: a package of the suite is taken only when asked for by name.
_PRIORITY = 100


@contextmanager
def private_apt(own: Sequence[AptSource], extra: AptSource, apt: Path = APT) -> Iterator[Path]:
    """Yield an ``APT_CONFIG`` file for the sources ``own`` and, pinned down, ``extra``.

    Lists and archives are in the same temporary folder; only dpkg's database is the machine's.
    """
    with tempfile.TemporaryDirectory(prefix="imgbuild-apt-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt downloads as the user _apt
        for part in ("sources.list.d", "preferences.d", "lists/partial", "archives/partial"):
            (folder / part).mkdir(parents=True)
        _write_sources(folder / "sources.list.d", own, extra)
        _write_preferences(folder / "preferences.d", extra, apt / "preferences.d")
        config = folder / "apt.conf"
        config.write_text(_config(folder), encoding="utf-8")
        yield config


def _write_sources(folder: Path, own: Sequence[AptSource], extra: AptSource) -> None:
    stanzas = [source.as_deb822() for source in own]
    # The newest suite's Release file may be past its date on a mirror; its signature still counts.
    stanzas.append(extra.as_deb822(outlives_validity=True))
    (folder / "debian.sources").write_text("\n".join(stanzas), encoding="utf-8")


def _write_preferences(folder: Path, extra: AptSource, machine: Path) -> None:
    for file in sorted(machine.glob("*")) if machine.is_dir() else []:
        shutil.copy(file, folder / file.name)
    pins = [
        f"Package: *\nPin: release {field}={suite}\nPin-Priority: {_PRIORITY}\n"
        for suite in extra.suites
        for field in ("n", "a")
    ]
    (folder / "imgbuild.pref").write_text("\n".join(pins), encoding="utf-8")


def _config(folder: Path) -> str:
    values = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": folder / "sources.list.d",
        "Dir::Etc::PreferencesParts": folder / "preferences.d",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache::Archives": folder / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Acquire::Languages": "none",
    }
    return "".join(f'{key} "{value}";\n' for key, value in values.items())
