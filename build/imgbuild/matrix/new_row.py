"""Add a release of TensorFlow to the text of ``matrix.yaml``, and keep the rest as it is.

A stack has one release of each minor version. A newer release replaces the older one in all its
rows on this stack. A new minor version gets a copy of an existing row, directly after that row.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from imgbuild.core.errors import InputError
from imgbuild.core.yaml_file import Location, read_document
from imgbuild.matrix.images import minor_of
from imgbuild.matrix.model import DistributionKey, Matrix, Row, TensorFlow, Variant
from imgbuild.matrix.pins import resolve_pin
from imgbuild.matrix.rules import admits, parse_numbers

_ARCHITECTURES = re.compile(r",? *\n? *architectures: \[[^]]*\]")
#: What was measured with a release, and is not copied to another one.
_MEASURED = re.compile(r",? *\n? *(budget: \{[^}]*\}|ran_on: \[[^]]*\])")


@dataclass(frozen=True)
class NewRow:
    """A release to add, and the row to copy, or to replace if it has the same minor version."""

    matrix: Matrix
    path: Path
    version: str
    like: Row
    variants: Sequence[Variant]

    @property
    def replaces(self) -> bool:
        return minor_of(self.like.tensorflow) == minor_of(self.version)

    @property
    def wheel_tag(self) -> str:
        python = resolve_pin(self.matrix, self.like, "python").version
        return self.matrix.python[python].wheel_tag

    @property
    def release(self) -> TensorFlow:
        """The entry of the TensorFlow release in the row to copy or replace."""
        return self.matrix.tensorflow[self.like.tensorflow]

    @property
    def distributions(self) -> dict[Variant, list[str]]:
        """The possible package names on the index for each variant, most likely first."""
        before = self.release.distribution
        distributions = {}
        for variant in self.variants:
            usual = f"tensorflow-{variant}"
            names = dict.fromkeys((before.get(variant, usual), usual, "tensorflow"))
            distributions[variant] = [*names]
        return distributions

    @property
    def names_for_arm64(self) -> list[str]:
        """The possible package names of the wheel for arm64; none if the row to copy has none."""
        if "arm64" not in self.like.architectures or "cpu" not in self.variants:
            return []
        names = dict.fromkeys((self.release.distribution["arm64"], "tensorflow"))
        return [*names]

    @property
    def cudnn(self) -> str | None:
        """The cuDNN of the nearest release that has one; None without a GPU variant."""
        releases = self.matrix.tensorflow.items()
        known = {name: release.cudnn for name, release in releases if release.cudnn}
        if "gpu" not in self.variants or not known:
            return None
        return known[_nearest(known, self.version)]

    @property
    def horovod(self) -> str:
        """The Horovod of the row to copy if it fits, else the newest that fits.

        InputError: the matrix has no Horovod for this TensorFlow.
        """
        fitting = [
            name
            for name, horovod in self.matrix.horovod.items()
            if admits(horovod.tensorflow, self.version)
        ]
        if not fitting:
            raise InputError(
                f"No Horovod in {self.path} supports TensorFlow {self.version}. Add one to "
                "`horovod:`, or widen `tensorflow:` of one that you tested with it. Then add the "
                "version again."
            )
        same: str = self.like.horovod.version
        return same if same in fitting else max(fitting, key=parse_numbers)

    def text(self, beside: Mapping[str, str], distributions: Mapping[DistributionKey, str]) -> str:
        """Return the text of the matrix with the new release and its row.

        ``beside`` has the releases of packages that go with it, by key, for example of TensorBoard.
        """
        document = read_document(self.path)
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        old, new = self.like.tensorflow, self.version
        named = re.compile(rf"\btensorflow: {re.escape(old)}(?![\d.])")
        edits: list[tuple[slice, str]] = []
        known = self.matrix.tensorflow.get(new)
        packages = known.distribution if known else distributions
        for number, row in enumerate(self.matrix.images):
            place = _lines_of(lines, document.marks, ("images", number))
            text = "".join(lines[place])
            changed = named.sub(f"tensorflow: {new}", text)
            if "arm64" not in packages:
                changed = _ARCHITECTURES.sub("", changed)
            if self._is_replaced(row):
                edits.append((place, changed))
            elif row is self.like and not self.replaces:
                after = slice(place.stop, place.stop)
                edits.append((after, self._copy_row(changed)))
        if new not in self.matrix.tensorflow:
            before = _nearest(self.matrix.tensorflow, new)
            place = _lines_of(lines, document.marks, ("tensorflow", before))
            at = place.stop if parse_numbers(before) < parse_numbers(new) else place.start
            release = self._release(beside, distributions)
            edits.append((slice(at, at), release))
        kept = {row.tensorflow for row in self.matrix.images if not self._is_replaced(row)}
        if self.replaces and old not in kept:
            place = _lines_of(lines, document.marks, ("tensorflow", old))
            edits.append((place, ""))
        # Edit from the end, so that the line numbers of the other edits stay right. At the same
        # start, replace lines before inserting in front of them.
        edits.sort(key=lambda edit: (edit[0].start, edit[0].stop), reverse=True)
        for place, text in edits:
            lines[place] = [text]
        return "".join(lines)

    def _is_replaced(self, row: Row) -> bool:
        same = (row.tensorflow, row.stack) == (self.like.tensorflow, self.like.stack)
        return self.replaces and same

    def _copy_row(self, row: str) -> str:
        variants = ", ".join(self.variants)
        row = re.sub(r"variants: \[[^]]*\]", f"variants: [{variants}]", row)
        if self.horovod != self.like.horovod.version:
            row = re.sub(r"horovod: (\{[^}]*\}|[^,}\s]+)", f"horovod: {self.horovod}", row)
        return without_measurements(row)

    def _release(
        self, beside: Mapping[str, str], distributions: Mapping[DistributionKey, str]
    ) -> str:
        named = ", ".join(f"{variant}: {name}" for variant, name in distributions.items())
        cudnn = f"    cudnn: {self.cudnn}\n" if self.cudnn else ""
        others = "".join(f"    {name}: {version}\n" for name, version in beside.items())
        return f"  {self.version}:\n{others}    distribution: {{{named}}}\n{cudnn}"


def without_measurements(row: str) -> str:
    """Return the text of a row without its size budget and the GPUs that it ran on."""
    return _MEASURED.sub("", row)


def new_row(
    matrix: Matrix, path: Path, version: str, stack: str | None, variants: Sequence[Variant]
) -> NewRow:
    """Return the row to add for a release on a stack, by default the stack of ``defaults``.

    InputError: the stack already has the release or a newer one of the same minor version, the
    stack has no row, or the variants differ from those of the row to replace.
    """
    stack = stack or matrix.defaults.stack
    rows = []
    for row in matrix.images:
        is_usual = row.mpi is None and not row.without_horovod
        if is_usual and row.stack == stack:
            rows.append(row)
    if not rows:
        listed = ", ".join(matrix.stacks)
        raise InputError(f"--stack {stack!r}: there is no row with this stack. Stacks: {listed}.")
    by_version = {row.tensorflow: row for row in rows}
    if version in by_version:
        raise InputError(f"{path.name} already has TensorFlow {version} on {stack}.")
    same = [name for name in by_version if minor_of(name) == minor_of(version)]
    if same and parse_numbers(same[0]) > parse_numbers(version):
        raise InputError(
            f"{path.name} has TensorFlow {same[0]} on {stack}, which is newer than {version}. A "
            "stack has one release of each minor version. To use the older one, edit the row by "
            "hand."
        )
    nearest = same[0] if same else _nearest(by_version, version)
    like = by_version[nearest]
    if same and variants and {*variants} != {*like.variants}:
        raise InputError(
            f"TensorFlow {version} replaces {like.tensorflow} on {stack} and keeps its variants. "
            "Omit --cpu and --gpu, or change `variants` of the row first."
        )
    return NewRow(matrix, path, version, like, variants or like.variants)


def _nearest(versions: Mapping[str, object], version: str) -> str:
    """Return the newest release that is older than the version, or else the oldest release."""
    older = [known for known in versions if parse_numbers(known) < parse_numbers(version)]
    if older:
        return max(older, key=parse_numbers)
    return min(versions, key=parse_numbers)


def _lines_of(
    lines: Sequence[str], marks: Mapping[Location, tuple[int, int]], entry: Location
) -> slice:
    """Return the lines of an entry of a list or a table, without the comments after it."""
    start, column = marks[entry]
    if isinstance(entry[-1], int):  # the mark is after the hyphen
        line = lines[start - 1]
        column = len(line) - len(line.lstrip()) + 1
    inside = takewhile(lambda line: line[:column].isspace() and line.strip(), lines[start:])
    return slice(start - 1, start + len([*inside]))
