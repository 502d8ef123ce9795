"""Compare the inputs of a built image with the current inputs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from imgbuild.core.files import parse_json
from imgbuild.dockerfile.labels import INPUT_PARTS, NAMESPACE
from imgbuild.locks.lockfile import FOLDER
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import DOWNLOAD, PACKAGES, STAGE, InputDigest

#: The format version of the label that holds the parts; older labels have no version.
FORM = 2
_PIN = f"{NAMESPACE}.pin."


class Change(NamedTuple):
    """One changed input. ``old`` is None if it was added, ``new`` is None if it was removed."""

    input: str
    old: str | None
    new: str | None

    @property
    def arrow(self) -> str:
        return f"{self.old or 'nothing'} → {self.new or 'nothing'}"


def parts_label(digest: InputDigest) -> str:
    """Return the value of the label ``imgbuild.inputs``: about 4 kB at most, without secrets."""
    document = {"form": FORM, "parts": dict(digest.parts)}
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def find_changes(
    labels: Mapping[str, str], image: Image, digest: InputDigest
) -> tuple[Change, ...]:
    """Return the changes since an image with ``labels`` was built: pins, then other inputs.

    If an older imgbuild built the image, only pins can be compared.
    """
    return (*_compare_pins(labels, image), *_compare_parts(read_parts(labels), digest.parts))


def describe_changes(changes: Iterable[Change]) -> str:
    """Describe changes in one line, with the first package of each lock and all stage names."""
    groups: list[str] = []
    packages: dict[str, list[str]] = {}
    stages: list[str] = []
    for change in changes:
        lock, colon, package = change.input.partition(": ")
        if colon:
            packages.setdefault(lock, []).append(f"{package} {change.arrow}")
        elif change.input.startswith(STAGE):
            stages.append(change.input.removeprefix(STAGE))
        else:
            groups.append(f"{change.input} {change.arrow}")
    for lock, (first, *more) in packages.items():
        group = f"{lock}: {first}"
        if more:
            group += f" (+{len(more)} more)"
        groups.append(group)
    if stages:
        word = "stages" if len(stages) > 1 else "stage"
        groups.append(f"Dockerfile: {word} {', '.join(stages)}")
    return "; ".join(groups)


def _compare_pins(labels: Mapping[str, str], image: Image) -> Iterator[Change]:
    old = {}
    for label, version in labels.items():
        if label.startswith(_PIN):
            old[label.removeprefix(_PIN)] = version
    new = {pin.component: pin.version for pin in image.pins}
    # Labels without pins belong to an image from other templates.
    return _compare(old, new, "pin ") if old else iter(())


def read_parts(labels: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the input parts of an image; None if its label is missing or unreadable."""
    try:
        document = parse_json(labels.get(INPUT_PARTS, "null"))
        parts = document["parts"] if document["form"] == FORM else None
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(parts, dict):
        return None
    return {str(name): str(value) for name, value in parts.items()}


def _compare_parts(old: Mapping[str, str] | None, new: Mapping[str, str]) -> Iterator[Change]:
    if old is None:
        return
    for name in sorted({*old, *new}, key=lambda name: (name.startswith(STAGE), name)):
        # Skip a lock's layers, because they follow from its packages and their stage is listed.
        packages = name.endswith(PACKAGES) and not name.startswith(STAGE)
        if packages or name.startswith(f"locks/{FOLDER}/"):
            continue
        if old.get(name) == new.get(name):
            continue
        # For a lock, compare its packages; they are equal if only hashes or comments differ.
        before = _parse_packages(old.get(name + PACKAGES, ""))
        after = _parse_packages(new.get(name + PACKAGES, ""))
        changed = [*_compare(before, after, f"{name}: ")]
        shown = name
        if name.startswith(DOWNLOAD):  # omit the context
            shown = DOWNLOAD + name.rpartition("/")[2]
        yield from changed or [Change(shown, old.get(name), new.get(name))]


def _parse_packages(packages: str) -> dict[str, str]:
    return dict(package.partition("==")[::2] for package in packages.split(",") if package)


def _compare(old: Mapping[str, str], new: Mapping[str, str], prefix: str) -> Iterator[Change]:
    for name in dict.fromkeys((*new, *old)):
        if old.get(name) != new.get(name):
            yield Change(f"{prefix}{name}", old.get(name), new.get(name))
