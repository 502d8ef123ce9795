"""The wheel: what it brings, its version, and that it works where there is no checkout.

A family of one's own is made and built in test_installed.py.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from imgbuild.core.project import PARTS, Project
from support.project_copy import NO_ENGINE, ROOT, copied

FAMILY = "imgbuild/family/"
REVISION_OF = """\
from types import SimpleNamespace
from imgbuild.build.context import BuildContext
from imgbuild.cli.options import open_project
print(BuildContext.revision.func(SimpleNamespace(project=open_project(None))))
"""


def hatchling(source: Path, target: str, folder: Path) -> Path:
    """Build a ``wheel`` or ``sdist`` of a folder of sources; return it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@dataclass(frozen=True)
class Installed:
    """An environment with imgbuild alone in it; what it needs is that of the running one."""

    folder: Path
    empty: Path
    site: Path

    def run(
        self, *arguments: str, folder: Path | None = None, program: str = "imgbuild"
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line as a user who has no engine types it."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        places = {
            f"XDG_{name}_HOME": str(self.folder / name) for name in ("CONFIG", "CACHE", "STATE")
        }
        return subprocess.run(
            [str(self.folder / "env" / "bin" / program), *arguments],
            cwd=folder or self.empty,
            env={**kept, **places, **NO_ENGINE, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, *arguments: str, folder: Path | None = None) -> str:
        result = self.run(*arguments, folder=folder)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel without a network; nothing is in the empty folder nor above it."""
    folder = tmp_path_factory.mktemp("installed")
    (empty := folder / "empty").mkdir()
    env, uv = folder / "env", str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(env)], check=True)
    command = ["pip", "install", "-q", "--offline", "--no-deps", "--compile-bytecode"]
    subprocess.run([uv, *command, "--python", str(env / "bin" / "python"), str(wheel)], check=True)
    (site,) = env.glob("lib/python3*/site-packages")
    # Packages of the running environment; that its imgbuild is editable is not read from there.
    (site / "needs.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return Installed(folder, empty, site)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hatchling(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


in_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="these sources are no checkout")


def _git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=one", "-c", "user.email=one@example.org")
    done = subprocess.run(["git", *name, *words], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


def _sources(*parts: str) -> list[str]:
    """Return the files in these places that git does not ignore."""
    listed = _git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *parts)
    return listed.split("\0")[:-1]


@in_git
def test_the_wheel_is_the_program_and_the_family(wheel: Path) -> None:
    family = _sources(*PARTS)
    with zipfile.ZipFile(wheel) as archive:
        held = {one.filename: one for one in archive.infolist()}
        for name in family:
            assert archive.read(FAMILY + name) == (ROOT / name).read_bytes()
            runs = bool(held[FAMILY + name].external_attr >> 16 & 0o100)
            assert runs is bool((ROOT / name).stat().st_mode & 0o100), name
    expected = {name.removeprefix("build/") for name in _sources("build/imgbuild")}
    expected |= {FAMILY + name for name in (*family, "REVISION")}
    assert {name for name in held if ".dist-info/" not in name} == expected
    assert any(name.endswith(".dist-info/licenses/NOTICE") for name in held)
    assert wheel.stat().st_size < 4_200_000, "mostly the sha256 of 90 locks, which do not pack"


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(hatchling(ROOT, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path)  # noqa: S202 - made here; Debian 12's Python has no filter
    (sources,) = tmp_path.glob("imgbuild-*")
    again = hatchling(sources, "wheel", tmp_path / "wheel")
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


@in_git
def test_packages_of_a_commit_name_it(tmp_path: Path) -> None:
    """The first package, in the folder of sources, is no change of theirs."""
    clone = tmp_path / "clone"
    _git(tmp_path, "clone", "-q", str(ROOT), str(clone))
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=clone, check=True)
    (wheel,) = clone.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        said = archive.read(f"{FAMILY}REVISION").decode()
    assert said == _git(clone, "rev-parse", "HEAD")


def test_an_editable_install_has_no_family(tmp_path: Path) -> None:
    """It would be one of yesterday."""
    code = f"from hatchling.build import build_editable as b; b({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    (made,) = tmp_path.iterdir()
    with zipfile.ZipFile(made) as archive:
        assert not [name for name in archive.namelist() if "family" in name]


def test_commands_work_in_an_empty_folder(installed: Installed) -> None:
    version, images = installed.output("--version").splitlines()
    assert images == f"Images: installed with {version}"
    assert installed.output("list").count("\n") > 30
    assert "TensorFlow" in installed.output("show", "--tf", "2.2", "--gpu")
    for command in ("render", "lock"):
        installed.output(command, "--check")
    assert [*installed.empty.iterdir()] == []


def test_a_checkout_counts_where_there_is_one_and_has_the_same_inputs(
    installed: Installed, tmp_path: Path
) -> None:
    """Byte code lies beside the family's files, as pip leaves it, and git around them."""
    checkout = copied(Project(ROOT), tmp_path).root
    assert f"Images: {checkout}\n" in installed.output("--version", folder=checkout / "images")
    assert [*installed.site.rglob("family/images/**/__pycache__")]
    assert installed.output("matrix", "--project", str(checkout)) == installed.output("matrix")
    _git(installed.folder, "init", "-q")
    revision = (installed.site / "imgbuild" / "family" / "REVISION").read_text()
    assert installed.run("-c", REVISION_OF, program="python").stdout == f"{revision or None}\n"


@pytest.mark.parametrize("command", ["render", "lock", "add 2.2.9", "audit --write"])
def test_the_installed_family_is_only_read(installed: Installed, command: str) -> None:
    result = installed.run(*command.split())
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "`imgbuild init DIR`" in result.stderr


def test_settings_outside_a_checkout_are_the_user_s(installed: Installed) -> None:
    path = installed.folder / "CONFIG" / "imgbuild" / "imgbuild.local.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("engine: {hots: x}\n", encoding="utf-8")
    result = installed.run("matrix", "--tf", "2.2")
    path.unlink()
    assert (result.returncode, f"{path}: 1 fault" in result.stderr) == (2, True)
    new = installed.folder / "new.yaml"
    for words, written in (((), path), (("--settings", str(new)), new)):
        installed.run(*words, "doctor", "--write", "--tf", "2.12")  # Debian's Python
        assert written.read_text(encoding="utf-8").startswith("# The inputs that this machine")
    assert [*installed.empty.iterdir()] == []
