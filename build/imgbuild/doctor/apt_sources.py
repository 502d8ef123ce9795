"""Where this machine's apt finds Debian: deb822 ``.sources`` files and one-line ``.list`` files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

APT = Path("/etc/apt")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class AptSource:
    """One source of binary packages (sources.list(5))."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""
    """A path, a fingerprint or a key of several lines, as it was written; may be empty."""

    def at(self, suite: str) -> "AptSource":
        """Return the same archive and keys with another suite."""
        return AptSource(self.uris, (suite,), ("main",), self.signed_by)

    def as_deb822(self, *, outlives_validity: bool = False) -> str:
        """Return the stanza; ``outlives_validity`` accepts a Release file past its Valid-Until."""
        lines = [
            "Types: deb",
            f"URIs: {' '.join(self.uris)}",
            f"Suites: {' '.join(self.suites)}",
            f"Components: {' '.join(self.components)}",
        ]
        lines += [f"Signed-By: {self.signed_by}"] if self.signed_by else []
        lines += ["Check-Valid-Until: no"] if outlives_validity else []
        return "\n".join(lines) + "\n"


def find_debian_source(codename: str, apt: Path = APT, keyring: Path = KEYRING) -> AptSource | None:
    """Return the source that gives this machine Debian's ``codename``, or ``None``.

    Third parties name suites after Debian's releases too, so the one that looks most like Debian's
    own wins; a wrong one does no harm, for its signature would not fit the keyring.
    """
    sources = read_sources(apt)
    candidates = [s for s in sources if codename in s.suites and "main" in s.components]
    if not candidates:
        return None
    best = max(candidates, key=lambda source: _likeness(source, codename, sources))
    signed_by = best.signed_by or (str(keyring) if keyring.is_file() else "")
    return AptSource(best.uris, best.suites, best.components, signed_by)


def read_sources(apt: Path = APT) -> list[AptSource]:
    """Return every enabled source of binary packages, in apt's own order of files."""
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    found: list[AptSource] = []
    for file in files:
        if file.is_file() and file.suffix in {".list", ".sources"}:
            text = file.read_text(encoding="utf-8", errors="replace")
            parse = parse_deb822 if file.suffix == ".sources" else parse_one_line
            found += parse(text)
    return found


def parse_deb822(text: str) -> list[AptSource]:
    """Return the enabled ``deb`` stanzas of a ``.sources`` file."""
    found = []
    for fields in _stanzas(text):
        enabled = fields.get("enabled", "yes").lower() not in {"no", "false", "0", "off"}
        source = _source(
            fields.get("uris", "").split(),
            fields.get("suites", "").split(),
            fields.get("components", "").split(),
            fields.get("signed-by", ""),
        )
        if enabled and "deb" in fields.get("types", "").split() and source:
            found.append(source)
    return found


def parse_one_line(text: str) -> list[AptSource]:
    """Return the ``deb`` lines of a ``.list`` file."""
    found = []
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[(?P<options>[^]]*)]\s+)?(?P<rest>.+)", _uncommented(line))
        if not match:
            continue
        words: list[str] = match["rest"].split()
        options = dict(o.split("=", 1) for o in (match["options"] or "").split() if "=" in o)
        source = _source(words[:1], words[1:2], words[2:], options.get("signed-by"))
        found += [source] if source else []
    return found


def _source(
    uris: list[str], suites: list[str], components: list[str], signed_by: str | None
) -> AptSource | None:
    # A CD holds one suite only.
    usable = tuple(uri for uri in uris if uri and not uri.startswith("cdrom:"))
    if not usable:
        return None
    return AptSource(usable, tuple(suites), tuple(components), signed_by or "")


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each stanza, names in lower case, continued lines kept as they are."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and name:
                fields[name] += f"\n{line}"
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields:
            yield fields


def _uncommented(line: str) -> str:
    return line.split("#", 1)[0].strip()


def _likeness(source: AptSource, codename: str, sources: list[AptSource]) -> int:
    """Return how much ``source`` looks like Debian's own archive."""
    siblings = {suite for other in sources if other.uris == source.uris for suite in other.suites}
    return (
        2 * ("debian-archive" in source.signed_by)
        + (f"{codename}-updates" in siblings)
        + any(re.search(r"/debian/?$|debian\.list$", uri) for uri in source.uris)
    )
