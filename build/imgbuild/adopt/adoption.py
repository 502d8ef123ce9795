"""Read and write ``imgbuild.adopt.yaml``, the decisions of `imgbuild adopt`."""

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from posixpath import normpath
from typing import Annotated, Any

from packaging.utils import is_normalized_name
from pydantic import AfterValidator

from imgbuild.adopt.choice import Decision
from imgbuild.core import scalars
from imgbuild.core.errors import InputError
from imgbuild.core.files import parse_json, sha256, write_text
from imgbuild.core.project import ADOPTION_FILE
from imgbuild.core.text import printable
from imgbuild.core.user_folders import state_dir
from imgbuild.core.yaml_file import LARGEST, Section, load_model
from imgbuild.locks.resolver import index_requirement

#: The files that stay with a repository.
FILE, LOCK = ADOPTION_FILE, "imgbuild.adopt.lock.txt"
#: Limits for the decisions that are comments, and for their characters.
_MOST_REASONS, _LONGEST_REASON = 300, 400
#: The beginning of the tags that adopt chooses.
OWN_TAGS = "adopted/"
_HEADER = """\
# Written by `imgbuild adopt`, which uses these values the next time. Edit them as you like;
# `imgbuild adopt --refresh` decides anew. Commit this file and imgbuild.adopt.lock.txt.
"""


def _relative(value: str) -> str:
    """Return the path of a file or folder in the repository; ValueError: it is outside.

    A colon would divide PYTHONPATH.
    """
    path = normpath(value or ".")
    is_outside = path.startswith(("/", "../")) or path == ".."
    if is_outside or ":" in path or not path.isprintable():
        raise ValueError(f"{value!r} is not a path in the repository, without colons")
    return path


def _argument(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{value!r} has line ends or control characters")
    return value


def _module(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(f"{value!r} is not the name of a module")
    return value


def parse_day(text: str) -> date:
    """Return the day of a text such as 2019-12-31; ValueError: it is none."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a day, for example 2019-12-31")
    return date.fromisoformat(text)


def _day(value: str) -> str:
    parse_day(value)
    return value


def _plain_requirement(value: str) -> str:
    """Return a requirement unchanged; ValueError: it is none of the index, for example a file."""
    try:
        is_file = ".whl" in index_requirement(value).lower()  # a file's name can be valid
    except ValueError:
        is_file = True
    if is_file:
        raise ValueError(f"{value[:200]!r} is not a requirement of the package index")
    return value


def _package_name(value: str) -> str:
    if not is_normalized_name(value):
        raise ValueError(f"{value!r} is not the canonical name of a package")
    return value


def _override(value: str) -> str:
    name, separator, requirement = value.partition("=")
    if not separator or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"{value!r} is not NAME=REQUIREMENT")
    _plain_requirement(requirement)
    return value


RelativePath = Annotated[str, AfterValidator(_relative)]
Argument = Annotated[str, AfterValidator(_argument)]
Module = Annotated[str, AfterValidator(_module)]
Day = Annotated[str, AfterValidator(_day)]
Requirement = Annotated[str, AfterValidator(_plain_requirement)]
Override = Annotated[str, AfterValidator(_override)]
PackageName = Annotated[str, AfterValidator(_package_name)]


class Adoption(Section):
    """The decisions for one program of a repository.

    - ``date``: packages are resolved as of this day; empty: the newest that fit
    - ``python_path``: folders of the repository for PYTHONPATH
    - ``optional``: names of packages that are left out if they cannot be had
    - ``constraints``: bounds of packages that other packages may require
    - ``overrides``: ``NAME=REQUIREMENT``; if a package requires NAME, REQUIREMENT is installed
    - ``wheels_only``: names of packages that could not be compiled, so no source of them is used
    - ``build_apt``: Debian packages that the compilation of packages needs
    """

    tag: scalars.ImageTag
    image: scalars.Name
    entry: RelativePath
    module: Module | None = None
    arguments: tuple[Argument, ...] = ()
    python_path: tuple[RelativePath, ...] = ()
    date: Day | None = None
    pip: tuple[Requirement, ...] = ()
    optional: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    overrides: tuple[Override, ...] = ()
    wheels_only: tuple[PackageName, ...] = ()
    apt: tuple[scalars.AptChoice, ...] = ()
    build_apt: tuple[scalars.AptChoice, ...] = ()


def read_adoption(folder: Path) -> Adoption | None:
    """Return the decisions in a folder's file; None if there is no file.

    InputError: the file is damaged; the message lists each fault with its position.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return None
    require_plain(path)
    return load_model(path, Adoption)


def write_adoption(folder: Path, adoption: Adoption, decisions: Iterable[Decision]) -> Path:
    """Write the decisions, each with its evidence as a comment; return the path.

    InputError: the path is not a regular file. MachineError: the file cannot be written.
    """
    path = folder / FILE
    require_plain(path)
    write_text(path, adoption_text(adoption, decisions))
    return path


def require_plain(path: Path, largest: int = LARGEST) -> None:
    """Raise InputError if a file of a repository is a link, a device, a folder, or too large.

    It is read as a whole before it is replaced.
    """
    if not os.path.lexists(path):
        return
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path.name} is not a regular file. Remove it, and run adopt again.")
    if status.st_size > largest:
        raise InputError(
            f"{path.name} is larger than {largest} bytes, the limit for this file. Remove it, and "
            "run adopt again."
        )


def result_path(folder: Path) -> Path:
    """Return the file in which this machine keeps the result for a repository."""
    digest = sha256(os.fsencode(os.path.realpath(folder)))
    return state_dir() / "adopted" / f"{digest[:32]}.json"


def read_result(folder: Path) -> Mapping[str, Any]:
    """Return the result that this machine keeps for a repository; empty if there is none."""
    try:
        result = parse_json(result_path(folder).read_bytes())
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def adoption_text(adoption: Adoption, decisions: Iterable[Decision]) -> str:
    """Return the text of the file. JSON's strings and lists are also YAML."""
    lines = [_HEADER.rstrip()]
    reasons: dict[str, list[str]] = {}
    for decision in islice(decisions, _MOST_REASONS):
        reason = explain_decision(decision)[:_LONGEST_REASON]
        reasons.setdefault(decision.subject[:_LONGEST_REASON], []).append(reason)
    comments = dict(reasons)
    for name, value in adoption.model_dump(exclude_defaults=True).items():
        lines += [f"# {reason}" for reason in comments.pop(_SUBJECTS.get(name, name), ())]
        if isinstance(value, tuple):
            lines.append(f"{name}:")
            lines += [f"- {_quote(item)}" for item in value]
        else:
            lines.append(f"{name}: {_quote(value)}")
    for subject, texts in comments.items():
        lines += [f"# {_one_line(subject)}: {text}" for text in texts]
    return "".join(f"{line}\n" for line in lines)


def _quote(text: str) -> str:
    # YAML does not know JSON's pairs of surrogates.
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    """Return a text of a repository for a comment, which must not end before its line."""
    return printable(" ".join(text.split()))


#: The subject of the decision that explains a key.
_SUBJECTS = {"image": "tensorflow", "pip": "package"}


def explain_decision(decision: Decision) -> str:
    """Return a decision's value, reason, evidence, and what speaks against it, as one line."""
    text = decision.value
    if decision.reason:
        text = f"{text}: {decision.reason}" if text else decision.reason
    places = _places(decision)
    if places:
        text = f"{text} ({', '.join(places)})"
    if decision.against:
        text = f"{text}; but {'; '.join(decision.against)}"
    return _one_line(text)


def _places(decision: Decision) -> Sequence[str]:
    """Return the places of a decision's evidence that its reason does not name."""
    return [str(place) for place in decision.evidence if str(place) not in decision.reason]
