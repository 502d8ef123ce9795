"""Tell TensorFlow 1 from TensorFlow 2 by what a program's code uses."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Literal, NamedTuple

from imgbuild.adopt.repository import Evidence
from imgbuild.adopt.source_facts import SourceFacts

#: Calls that TensorFlow 2 removed, with the words for messages.
_REMOVED = {
    "session": "tf.Session",
    "placeholder": "tf.placeholder",
    "layers1": "tf.layers",
    "get_variable": "tf.get_variable",
    "flags1": "tf.app.flags",
    "other1": "names that TensorFlow 2 removed",
    "deprecated0": "tf.initialize_all_variables",
}
#: Signs of TensorFlow 2. The first two need its eager execution; 1.15 has most of the others also.
_STRONG = {"function": "tf.function", "tape": "tf.GradientTape"}
_ADDED = {
    **_STRONG,
    "tf.keras": "tf.keras",
    "tf.config": "tf.config",
    "autotune": "tf.data.experimental.AUTOTUNE",
}
#: Signs that decide alone, in a file that does not compare versions.
_DECISIVE = {
    "contrib": "tf.contrib",
    "eager1": "tf.enable_eager_execution",
    "examples1": "tensorflow.examples",
}
#: The day on which the first release of each minor version could be installed, in the order of
#: versions. Source: the upload times of `tensorflow` in the Python package index, November 2026.
RELEASE_DAYS = {
    "1.0": date(2017, 2, 15),
    "1.1": date(2017, 4, 21),
    "1.2": date(2017, 6, 15),
    "1.3": date(2017, 8, 16),
    "1.4": date(2017, 11, 1),
    "1.5": date(2018, 1, 26),
    "1.6": date(2018, 3, 1),
    "1.7": date(2018, 3, 29),
    "1.8": date(2018, 4, 28),
    "1.9": date(2018, 7, 10),
    "1.10": date(2018, 8, 8),
    "1.11": date(2018, 9, 27),
    "1.12": date(2018, 11, 6),
    "1.13": date(2019, 2, 26),
    "1.14": date(2019, 6, 19),
    "1.15": date(2019, 10, 16),
    "2.0": date(2019, 9, 30),
    "2.1": date(2020, 1, 8),
    "2.2": date(2020, 5, 7),
    "2.3": date(2020, 7, 27),
    "2.4": date(2020, 12, 14),
    "2.5": date(2021, 5, 13),
    "2.6": date(2021, 8, 11),
    "2.7": date(2021, 11, 4),
    "2.8": date(2022, 2, 2),
    "2.9": date(2022, 5, 16),
    "2.10": date(2022, 9, 6),
    "2.11": date(2022, 11, 18),
    "2.12": date(2023, 3, 22),
    "2.13": date(2023, 7, 5),
    "2.14": date(2023, 9, 26),
    "2.15": date(2023, 11, 14),
    "2.16": date(2024, 3, 9),
    "2.17": date(2024, 7, 11),
    "2.18": date(2024, 10, 25),
    "2.19": date(2025, 3, 12),
    "2.20": date(2025, 8, 13),
    "2.21": date(2026, 3, 6),
}
#: The first release of 2.0 that people could install, an alpha. Source: the package index.
FIRST_ALPHA = date(2019, 3, 7)

Major = Literal["1", "2"]


class Family(NamedTuple):
    """The major version that the code needs.

    - ``likely``: the major version, unless a statement or the date says otherwise
    - ``is_certain``: whether the code fails with the other one, so that statements cannot change it
    - ``oldest``: the oldest minor that has what the code uses, or empty
    """

    likely: Major
    is_certain: bool
    reason: str
    evidence: tuple[Evidence, ...] = ()
    oldest: str = ""


def find_family(sources: Sequence[SourceFacts], day: date | None) -> Family:
    """Return the family of the code, whose last change was on ``day``."""
    plain = [source for source in sources if not _supports_both(source)]
    for sign, words in _DECISIVE.items():
        if places := find_signs(plain, (sign,)):
            return Family("1", True, f"{places[0]} uses {words}", places[:1])
    family = _compare_signs(sources)
    if family.likely == "2" and day and day < FIRST_ALPHA:
        reason = f"the code is of {day}, before TensorFlow 2"
        return Family("1", True, reason, oldest=family.oldest)
    if family.likely == "2" and not family.is_certain and day and day < RELEASE_DAYS["2.0"]:
        reason = f"the code is of {day}, before TensorFlow 2.0"
        return Family("1", False, reason, oldest=family.oldest)
    return family


def _supports_both(source: SourceFacts) -> bool:
    """Return whether a file compares versions, or imports ``tensorflow.contrib`` if it exists."""
    if source.tensorflow.get("guards0"):
        return True
    optional = [imported for imported in source.imports if imported.kind == "optional"]
    return any(imported.module.startswith("tensorflow.contrib") for imported in optional)


def _compare_signs(sources: Sequence[SourceFacts]) -> Family:
    """Return the family by the more frequent signs."""
    removed_names = {**_REMOVED, **_DECISIVE}
    old, new = find_signs(sources, removed_names), find_signs(sources, _ADDED)
    strong, bridge = find_signs(sources, _STRONG), find_signs(sources, ("compat.v1",))
    guards = find_signs(sources, ("guards0",))
    removed = _describe(sources, removed_names, old)
    if old and len(old) > 2 * len(new):
        return Family("1", not bridge and not guards, removed, old[:1])
    if old and not strong:  # tf.keras and tf.config are in 1.15 too
        return Family("1", False, removed, old[:1])
    if len(new) <= len(old) != 0:
        reason = f"{removed}, and {_describe(sources, _STRONG, strong)}"
        return Family("1", False, reason, (old[0], strong[0]))
    if strong:
        return Family("2", True, _describe(sources, _STRONG, strong), strong[:1])
    return _judge_weak_signs(sources, new, bridge)


def _judge_weak_signs(
    sources: Sequence[SourceFacts], new: Sequence[Evidence], bridge: Sequence[Evidence]
) -> Family:
    """Return the family of code that runs with both majors, for all that its signs tell."""
    if bridge:
        reason = f"{bridge[0]} uses tf.compat.v1, which 1.13 and later have"
        return Family("2" if new else "1", False, reason, (bridge[0],), "1.13")
    if new:
        return Family("2", False, _describe(sources, _ADDED, new), (new[0],))
    if keras := find_signs(sources, ("keras",)):
        return Family("1", False, f"{keras[0]} uses Keras without TensorFlow 2", keras[:1])
    return Family("2", False, "the code uses nothing that only one of TensorFlow 1 and 2 has")


def find_signs(sources: Iterable[SourceFacts], signs: Iterable[str]) -> tuple[Evidence, ...]:
    """Return each place of the signs, in the order of the sources."""
    wanted = tuple(signs)
    places = []
    for source in sources:
        lines: list[int] = []
        for sign in wanted:
            lines += source.tensorflow.get(sign, ())
        places += [Evidence(source.path, line) for line in sorted(lines)]
    return tuple(places)


def _describe(
    sources: Sequence[SourceFacts], words: Mapping[str, str], places: Sequence[Evidence]
) -> str:
    """Return a clause about the first of the places, for example ``train.py:3 uses tf.layers``."""
    for sign, name in words.items():
        if places and places[0] in find_signs(sources, (sign,)):
            return f"{places[0]} uses {name}"
    return ""
