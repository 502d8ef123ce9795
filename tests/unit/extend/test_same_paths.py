"""The program that refuses packages with the same paths, in the build of an extension."""

import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.extend import same_paths
from imgbuild.extend.same_paths import find_conflicts, main

SITE = "lib/python3.6/site-packages"
NAMESPACE = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"


def _install(site: Path, name: str, version: str, **files: str) -> None:
    """Install a package; its files are given by path, with their content."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    rows = []
    for path, content in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        rows.append(f'"{path}",sha256={content.encode().hex()},1')
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,", ""]))


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Path, Path]:
    """Give the site folder of the image, and the one whose files are added to it."""
    image, added = tmp_path / "image", tmp_path / "added"
    _install(image, "tensorflow_cpu", "2.2.3", **{"tensorflow/a.py": "a", "tests/x.py": "x"})
    added.mkdir()
    return image, added


TAKEN = {"tensorflow/a.py": "b"}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (TAKEN, ["tensorflow-cpu 2.2.3 and other 1 contain tensorflow/a.py"]),
        ({"tensorflow/a.py": "a"}, []),
        ({"tensorflow/b.py": "b"}, []),
        ({"tests/x.py": "y"}, []),
    ],
    ids=["taken", "equal", "beside", "tests"],
)
def test_files_of_the_image_are_not_replaced(
    sites: tuple[Path, Path], files: dict[str, str], says: list[str]
) -> None:
    _install(sites[1], "other", "1", **files)
    assert [*find_conflicts(*sites)] == says


@pytest.mark.parametrize(("content", "refused"), [("b", True), ("a", False)])
@pytest.mark.parametrize("row", ["", "tensorflow/a.py,,\n"], ids=["no row", "no hash"])
def test_a_file_that_its_package_does_not_list_counts(
    sites: tuple[Path, Path], row: str, content: str, *, refused: bool
) -> None:
    _install(sites[1], "other", "1", **{"tensorflow/a.py": content, "tensorflow/b.py": "b"})
    (sites[1] / "other-1.dist-info/RECORD").write_text(row)
    found = ["tensorflow-cpu 2.2.3 and a package that does not list it hold tensorflow/a.py"]
    assert [*find_conflicts(*sites)] == (found if refused else [])


@pytest.mark.parametrize(
    ("path", "first", "second", "refused"),
    [
        ("cv2/__init__.py", "a", "b", True),
        ("cv2/__init__.py", "a", "a", False),
        ("one.py", "a", "b", True),
        ("docs/conf.py", "a", "b", False),
        ("examples/a.py", "a", "b", False),
        ("LICENSE", "a", "b", False),
        ("mpl_toolkits/__init__.py", "# a\n" + NAMESPACE, NAMESPACE, False),
    ],
)
def test_added_packages_do_not_replace_each_others_files(
    sites: tuple[Path, Path], path: str, first: str, second: str, refused: bool
) -> None:
    _install(sites[1], "opencv_python", "4.5", **{path: first})
    _install(sites[1], "opencv_python_headless", "4.6", **{path: second})
    says = f"opencv-python 4.5 and opencv-python-headless 4.6 contain {path}"
    assert [*find_conflicts(*sites)] == ([says] if refused else [])


def test_two_packages_are_named_once(sites: tuple[Path, Path]) -> None:
    for name in ("one", "two"):
        _install(sites[1], name, "1", **{f"same/{number}.py": name for number in range(3)})
    assert len([*find_conflicts(*sites)]) == 1


def test_a_package_may_replace_its_own_older_files(sites: tuple[Path, Path]) -> None:
    _install(sites[1], "tensorflow.cpu", "2.2.9", **TAKEN)
    assert [*find_conflicts(*sites)] == []


def test_program_ends_with_the_reason(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _install(tmp_path / "opt/python" / SITE, name, "1", **{"same.py": name})
    program = [sys.executable, str(same_paths.__file__), str(tmp_path)]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Not installed: one 1 and two 1 contain same.py, ")


def test_nothing_installed_is_fine(tmp_path: Path) -> None:
    main(tmp_path)
