"""Requirement files as `imgbuild extend` reads them, judged against an image."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.extend.base_image import BaseImage, family_base
from imgbuild.extend.conda_file import CondaPackages
from imgbuild.extend.extension import parse_extension, requested_lines
from imgbuild.extend.requirement_files import judge_lines
from imgbuild.locks.requirement_rules import parse_constraints
from imgbuild.matrix.images import Image
from support.bench import NEW
from support.releases import release_of
from support.requirement_cases import (
    CONSTRAINTS,
    DIFFERING,
    FULFILLED,
    PACKAGES,
    REFUSED,
    REPAIRED,
    UNCHANGED,
)

_ADMITTED = {name: str(versions) for name, versions in parse_constraints(CONSTRAINTS).items()}
BASE = BaseImage(
    *("me/base:1", "me/base:1", "3.6.15", "2.36", "debian-12", PACKAGES, ()),
    bounds={**dict.fromkeys(PACKAGES, ""), **_ADMITTED},
)


@dataclass
class Folder:
    """A user's folder with a requirements file, and the notes on its lines."""

    path: Path
    notes: list[str] = field(default_factory=list)

    def wanted(
        self, *lines: str, base: BaseImage = BASE, encoding: str = "utf-8", keep_image: bool = False
    ) -> tuple[str, ...]:
        (self.path / "r.txt").write_text("\r\n".join(lines), encoding=encoding)
        extension = parse_extension({"requirements": ["r.txt"]})
        requests = requested_lines(extension, self.path, CondaPackages())
        return judge_lines(requests, base, self.path, self.notes.append, keep_image=keep_image)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def every_base(images: dict[str, Image], project: Project) -> dict[str, BaseImage]:
    return {name: family_base(image, project) for name, image in images.items()}


def test_extend_passes_lines_that_fit(folder: Folder) -> None:
    assert folder.wanted(*UNCHANGED) == UNCHANGED
    assert folder.notes == []


def test_extend_accepts_any_patch_release(folder: Folder) -> None:
    assert folder.wanted(*FULFILLED) == ()
    for number, note in enumerate(folder.notes, 1):
        assert note.startswith(f"r.txt:{number}: {FULFILLED[number - 1]}: ")
    assert len(folder.notes) == len(FULFILLED)


def test_extend_names_all_differing_lines_at_once(folder: Folder) -> None:
    with pytest.raises(InputError, match="--keep-image") as error:
        folder.wanted(*DIFFERING, "pandas")
    for number, line in enumerate(DIFFERING, 1):
        assert f"r.txt:{number}: {line}: the image has " in str(error.value)
    assert "pandas" not in str(error.value)


def test_keep_image_puts_differing_lines_aside(folder: Folder) -> None:
    assert folder.wanted(*DIFFERING, "pandas", keep_image=True) == ("pandas",)
    aside = [note for note in folder.notes if note.startswith("put aside: r.txt:")]
    assert len(aside) == len(DIFFERING)


def test_keep_image_keeps_no_other_tensorflow(folder: Folder) -> None:
    with pytest.raises(InputError) as error:
        folder.wanted(*REFUSED, "numpy==1.1", keep_image=True)
    for number, line in enumerate(REFUSED, 1):
        assert f"r.txt:{number}: {line}: " in str(error.value)
    assert "numpy" not in str(error.value)


def test_another_tensorflow_names_the_images_that_have_it(
    folder: Folder, images: dict[str, Image], project: Project
) -> None:
    with pytest.raises(InputError) as error:
        folder.wanted("tensorflow==2.1.0", base=family_base(images[NEW], project))
    assert f"the image has TensorFlow {release_of(images[NEW].minor)}" in str(error.value)
    assert "use --tf 2.1 --stack ubuntu or --tf 2.1 --stack debian" in str(error.value)


def test_extend_says_how_it_reads_lines(folder: Folder) -> None:
    expected = tuple(dict.fromkeys(filter(None, REPAIRED.values())))
    assert folder.wanted(*REPAIRED, keep_image=True) == expected
    assert len({note.partition("r.txt:")[2].partition(":")[0] for note in folder.notes}) == len(
        REPAIRED
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_extend_reads_files_of_windows_editors(folder: Folder, encoding: str) -> None:
    assert folder.wanted("tensorflow==2.2.*", "pandas", encoding=encoding) == (
        "tensorflow==2.2.*",
        "pandas",
    )


def test_extend_passes_over_places_of_wheels(folder: Folder) -> None:
    """Another index is refused: a package of the same name could come from the wrong one."""
    lines = ("-f https://me:secret@x.example/wheels", "--trusted-host x.example")
    assert folder.wanted(*lines, "pandas") == ("pandas",)
    assert [note.partition(" is ")[0] for note in folder.notes] == [
        "r.txt:1: -f",
        "r.txt:2: --trusted-host",
    ]
    for option in ("-i", "--extra-index-url", "--index-url"):
        with pytest.raises(InputError, match="the mirror `python-index`"):
            folder.wanted(f"{option} https://x.example/simple", "pandas")


def test_a_base_without_constraints_keeps_all(folder: Folder) -> None:
    with pytest.raises(InputError, match=r"cloudpickle==1\.3\.0: the image has 2\.2\.1"):
        folder.wanted("cloudpickle==1.3.0", base=replace(BASE, bounds={}))


@pytest.mark.parametrize(
    ("line", "name", "way"),
    [
        ("tensorflow_addons", "tf-2.18-cpu-debian", "--tf 2.15 --stack debian"),
        ("tensorflow-addons>=0.6", "tf-1.15-cpu-debian", "--tf 2.0 --stack debian"),
        ("tf-estimator-nightly", NEW, "leave it out"),
    ],
)
def test_what_works_with_no_release_is_refused(
    folder: Folder, every_base: dict[str, BaseImage], line: str, name: str, way: str
) -> None:
    with pytest.raises(InputError) as error:
        folder.wanted(line, base=every_base[name], keep_image=True)
    assert way in str(error.value)


@pytest.mark.parametrize(
    "line",
    ['six; os_name ~= "x"', "six" + " " * 200_000 + "x", "six; os_name == '" + "x" * 3000 + "'"],
)
def test_a_line_that_cannot_be_judged_is_named(folder: Folder, line: str) -> None:
    with pytest.raises(InputError, match=r"^r\.txt:2: "):
        folder.wanted("pandas", line)


def test_markers_know_nothing_of_this_machine(folder: Folder) -> None:
    line = 'numpy==1.1; platform_release != "" or platform_version != ""'
    assert folder.wanted(line) == (line,)


def test_files_that_include_many_others_are_refused(folder: Folder) -> None:
    """Each of a chain doubles what is to read."""
    for number in range(50):
        text = f"-r {number + 1}.txt\n" * 2
        (folder.path / f"{number}.txt").write_text(text)
    (folder.path / "50.txt").write_text("six\n")
    for name in ("0.txt", "35.txt"):
        with pytest.raises(InputError, match="fewer files"):
            folder.wanted(f"-r {name}")


@pytest.mark.parametrize(("depth", "twice"), [(30, False), (12, True)])
def test_endless_inclusion_is_refused(folder: Folder, depth: int, *, twice: bool) -> None:
    """A chain of files, and files that double at each level."""
    for number in range(depth):
        line = f"-r {number + 1}.txt\n"
        (folder.path / f"{number}.txt").write_text(line * (2 if twice else 1))
    (folder.path / f"{depth}.txt").write_text("pandas\n")
    with pytest.raises(InputError, match="files that include each other"):
        folder.wanted("-r 0.txt")
