"""Refuse packages that contain the same path with different content: the last one would win.

    same-paths ROOT

Packages were installed below ROOT, with the paths that they will have in the image, whose Python
(3.6 and later) runs this. They are compared with each other, and with the packages of the image
that none of them replaces. The files of a package, and their hashes, are read from its RECORD.
"""

import csv
import os
import re
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Folders at the top that no program imports: packages bring them by mistake.
NO_CODE = {"test", "tests", "doc", "docs", "example", "examples"}
CODE = (".py", ".so", ".pth")
METADATA = ".dist-info"
#: How a package says that its `__init__.py` is the same in each part of a namespace.
NAMESPACE = re.compile(r"extend_path\(|declare_namespace\(")


def canonical_name(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def is_noticeable(path: str) -> bool:
    """Return whether a program can notice the path, which is relative to the site folder."""
    top, slash, _ = path.partition("/")
    if top in NO_CODE or top.endswith(METADATA) or top in {"..", ""}:
        return False
    return bool(slash) or path.endswith(CODE)


def read_packages(folder: Path) -> "Iterator[tuple[str, str, dict[str, str]]]":
    """Give name, version, and the files with their hashes of each package in a site folder."""
    for entry in sorted(folder.iterdir()):
        record = entry / "RECORD"
        if entry.name.endswith(METADATA) and record.is_file():
            name, _, version = entry.name[: -len(METADATA)].partition("-")
            name = canonical_name(name)
            with record.open(encoding="utf-8", newline="") as stream:
                rows = [row for row in csv.reader(stream) if len(row) > 1 and row[1]]
            yield name, version, {row[0]: row[1] for row in rows if is_noticeable(row[0])}


def site_folders(root: Path) -> "list[Path]":
    """Return the folders below a root that packages are installed in."""
    sites = []
    for place, folders, _ in os.walk(str(root)):
        if any(name.endswith(METADATA) for name in folders):
            sites.append(Path(place))
            folders[:] = []
    return sorted(sites)


def is_namespace(path: str, *folders: Path) -> bool:
    """Return whether a path is the `__init__.py` of a namespace, which several packages have."""
    files = [folder / path for folder in folders if path.endswith("__init__.py")]
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()]
    return any(NAMESPACE.search(text) for text in texts)


def find_unlisted(added: Path, listed: "set[str]") -> "Iterator[str]":
    """Give the files below a folder that no package lists: installers copy them all the same."""
    for place, _, names in os.walk(str(added)):
        for name in names:
            path = Path(place, name).relative_to(added).as_posix()
            if path not in listed and is_noticeable(path):
                yield path


def find_conflicts(folder: Path, added: Path) -> "Iterator[str]":
    """Give, for each two packages that differ in a path, what they are and the first such path.

    ``folder`` is a site folder of the image, ``added`` what is to be copied onto it.
    """
    owners, seen, new = {}, set(), list(read_packages(added))
    names = {name for name, _, _ in new}
    for name, version, files in read_packages(folder) if folder.is_dir() else ():
        if name not in names:
            owners.update({path: (name, version, digest) for path, digest in files.items()})
    listed = set()
    for name, version, files in new:
        for path, digest in sorted(files.items()):
            listed.add(path)
            other, other_version, other_digest = owners.get(path, (name, version, digest))
            differs = other_digest != digest and (other, name) not in seen
            if differs and not is_namespace(path, added, folder):
                seen.add((other, name))
                yield f"{other} {other_version} and {name} {version} contain {path}"
            owners[path] = (name, version, digest)
    for path in sorted(find_unlisted(added, listed)):
        other, version, _ = owners.get(path, ("", "", ""))
        file = folder / path
        if other and file.is_file() and file.read_bytes() != (added / path).read_bytes():
            yield f"{other} {version} and a package that does not list it hold {path}"


def main(root: Path) -> None:
    sites = site_folders(root)
    each_site = (find_conflicts(Path("/") / added.relative_to(root), added) for added in sites)
    conflicts = list(chain.from_iterable(each_site))
    if conflicts:
        sys.exit(
            f"Not installed: {'; '.join(conflicts)}, each with different content, so one would "
            "break the other. Leave out one package of each pair."
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
