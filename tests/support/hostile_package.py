"""Source distributions whose code leaves a file where it runs, and wheels, in an index of files."""

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from imgbuild.core.files import file_sha256
from imgbuild.extend.additions import write_empty_wheel

#: Builds anything without a tool of its own (PEP 517), after it has left the file.
IN_TREE = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


@dataclass(frozen=True)
class HostileIndex:
    """A folder of packages; ``mark`` is the file that code of one of them makes where it runs."""

    folder: Path

    @property
    def mark(self) -> Path:
        return self.folder.with_name("code-ran")

    def source(self, name: str, version: str, pyproject: str = "") -> Path:
        """Put a source distribution into the folder."""
        run = f"open({str(self.mark)!r}, 'a').write('{name}')\n"
        said = f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n"
        setup = f"{run}from setuptools import setup\nsetup(name={name!r}, version={version!r})\n"
        files = {"setup.py": setup, "PKG-INFO": said, "backend.py": run}
        if pyproject:
            files["pyproject.toml"] = pyproject
        path = self.folder / f"{name}-{version}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for file, text in files.items():
                entry = tarfile.TarInfo(f"{name}-{version}/{file}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return path

    def wheel(self, name: str, version: str, *requires: str) -> Path:
        """Put a wheel into the folder."""
        write_empty_wheel(self.folder, name, version, requires)
        return self.folder / f"{name}-{version}-py3-none-any.whl"

    def pages(self) -> str:
        """Return the address of an index with pages that have the files."""
        root = self.folder.with_name("simple")
        for path in sorted(self.folder.iterdir()):
            page = root / canonicalize_name(path.name.partition("-")[0]) / "index.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            link = f'<a href="{path.as_uri()}#sha256={file_sha256(path)}">{path.name}</a>'
            with page.open("a", encoding="utf-8") as file:
                file.write(f"{link}<br>")
        return root.as_uri()
