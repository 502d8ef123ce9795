"""What was read of artifacts, kept by their sha256: committed as evidence, and cached per user."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.audit.facts import SdistFacts, WheelFacts
from imgbuild.audit.needs import SdistNeed, WheelNeed
from imgbuild.errors import InputError
from imgbuild.files import write_text

#: Raise it when the facts change their meaning: then everything is read anew.
SCHEMA = 1


@dataclass(frozen=True)
class Evidence:
    """The facts of artifacts, and the day (UTC, ISO 8601) on which one was last read anew."""

    date: str
    wheels: tuple[WheelFacts, ...] = ()
    sdists: tuple[SdistFacts, ...] = ()

    def wheels_for(self, need: WheelNeed) -> list[WheelFacts]:
        """Return the facts of every wheel that could be the needed one."""
        return [facts for facts in self.wheels if need.fits(facts.file)]

    def sdist_for(self, need: SdistNeed) -> SdistFacts | None:
        """Return what is known of a source distribution."""
        return next((facts for facts in self.sdists if facts.sha256 == need.sha256), None)

    def text(self) -> str:
        """Return it as the file that is committed: sorted, and the same for the same facts."""
        wheels = {facts.sha256: facts.as_json() for facts in self.wheels}
        sdists = {
            facts.sha256: {key: value for key, value in vars(facts).items() if key != "sha256"}
            for facts in self.sdists
        }
        document = {"schema": SCHEMA, "read": self.date, "wheels": wheels, "sdists": sdists}
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def load_evidence(path: Path) -> Evidence:
    """Return the committed evidence.

    Raises:
        InputError: it is missing, or was not written by ``imgbuild audit --write``.

    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _parsed(document)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing. Write it with `imgbuild audit --write`.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be used as evidence ({error}). Restore it from git, or write it anew "
            "with `imgbuild audit --write`."
        ) from error


def _parsed(document: Any) -> Evidence:  # noqa: ANN401 - whatever JSON holds
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']!r}, not {SCHEMA}")
    return Evidence(
        str(document["read"]),
        tuple(WheelFacts.from_json(sha256, v) for sha256, v in document["wheels"].items()),
        tuple(
            SdistFacts(sha256, str(v["file"]), v["size"], str(v["name"]), str(v["version"]))
            for sha256, v in document["sdists"].items()
        ),
    )


def write_evidence(path: Path, new: Evidence, keep: Iterable[WheelNeed | SdistNeed]) -> bool:
    """Write the evidence; return whether the file changed.

    Of what the file holds, facts of artifacts that were not read this time stay as long as an image
    of the matrix needs them (``keep``). The same facts keep their date.
    """
    old = load_evidence(path) if path.exists() else Evidence(new.date)
    merged = _merged(old, new, list(keep))
    if path.exists() and Evidence(old.date, merged.wheels, merged.sdists).text() == old.text():
        return False
    write_text(path, merged.text())
    return True


def _merged(old: Evidence, new: Evidence, keep: list[WheelNeed | SdistNeed]) -> Evidence:
    fresh = {*(facts.file for facts in new.wheels), *(facts.file for facts in new.sdists)}
    wheels = [need for need in keep if isinstance(need, WheelNeed)]
    sources = {need.sha256 for need in keep if isinstance(need, SdistNeed)}
    kept = [
        facts
        for facts in old.wheels
        if facts.file not in fresh and any(need.fits(facts.file) for need in wheels)
    ]
    others = [f for f in old.sdists if f.file not in fresh and f.sha256 in sources]
    return Evidence(new.date, (*kept, *new.wheels), (*others, *new.sdists))


class Cache:
    """Facts that this user has read before: one file an artifact, which appears whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, sha256: str) -> WheelFacts | None:
        """Return the facts of a wheel, nothing if it was not read yet or the file is no use."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(self._path(sha256).read_text(encoding="utf-8"))
            if document["schema"] == SCHEMA:
                return WheelFacts.from_json(sha256, document["facts"])
        return None

    def put(self, facts: WheelFacts) -> None:
        """Keep the facts of a wheel."""
        document = {"schema": SCHEMA, "facts": facts.as_json()}
        write_text(self._path(facts.sha256), json.dumps(document, indent=1) + "\n")

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.json"
