"""An imgbuild that is installed from its wheel into an environment of its own, and run there."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from project_copy import NO_ENGINE

PROGRAMS = Path(sys.executable).parent


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

    @property
    def site(self) -> Path:
        return next(self.folder.glob("env/lib/python3*/site-packages"))

    @property
    def empty(self) -> Path:
        """A folder with nothing in it nor above it, and no home."""
        place = self.folder / "empty"
        place.mkdir(exist_ok=True)
        return place

    def run(
        self, *arguments: str, folder: Path | None = None, program: str = "imgbuild"
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line as a user who has no engine types it."""
        kept = {name: value for name, value in os.environ.items() if name[:8] != "IMGBUILD"}
        kept.pop("PYTHONPATH", None)
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


def install(wheel: Path, folder: Path) -> Installed:
    """Install a wheel without a network."""
    env, uv = folder / "env", str(PROGRAMS / "uv")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(env)], check=True)
    command = ["pip", "install", "-q", "--offline", "--no-deps", "--compile-bytecode"]
    subprocess.run([uv, *command, "--python", str(env / "bin" / "python"), str(wheel)], check=True)
    made = Installed(folder)
    # Packages of the running environment; that its imgbuild is editable is not read from there.
    needs = made.site / "needs.pth"
    needs.write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return made
