"""Run in an image, by its own Python (3.6 and later): print which packages are installed, as JSON.

The whole file system is searched, because Miniconda has packages of its own. A package in two
folders is printed once.
"""

import json
import os
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path

FORMAT = r"${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\t"
FORMAT += r"${source:Version}\t${Maintainer}\n"
NO_FILES = {"proc", "sys", "dev", "run"}
CLASSIFIER = "License :: OSI Approved :: "


def system_packages() -> "list[list[str]] | None":
    """Return Debian's packages that are installed or on hold; None without dpkg."""
    try:
        said = subprocess.check_output(["dpkg-query", "--show", "--showformat", FORMAT])
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (line.split("\t") for line in said.decode(errors="replace").splitlines())
    return sorted(line[1:] for line in lines if line[0].startswith(("ii", "hi")))


def python_package(file: Path) -> "tuple[str, ...]":
    """Return name, version, the licence that is named, if any, and the folder."""
    headers = HeaderParser().parsestr(file.read_text("utf-8", "replace"))
    keys = ("Name", "Version", "License-Expression", "License")
    name, version, *named = (" ".join(str(headers.get(key, "")).split()) for key in keys)
    classifiers = map(str, headers.get_all("Classifier", []))
    named.append(", ".join(text.split(CLASSIFIER)[1] for text in classifiers if CLASSIFIER in text))
    # A longer text is the licence itself, not its name.
    short = [text for text in named if text not in {"", "UNKNOWN"} and len(text) <= 100]
    return name, version, (short or [""])[0], str(file.parents[file.suffix != ".egg-info"])


def conda_package(file: Path) -> "tuple[str, ...]":
    """Return name, version, licence and build."""
    record = json.loads(file.read_text("utf-8", "replace"))
    return tuple(str(record.get(key) or "") for key in ("name", "version", "license", "build"))


def main() -> None:
    python = {}  # type: dict[tuple[str, ...], tuple[str, ...]]
    conda = set()
    for name, folders, files in os.walk("/"):
        folders[:] = sorted({*folders} - (NO_FILES if name == "/" else set()))
        folder = Path(name)
        metadata = [folder / file for file in sorted(files) if file.endswith(".egg-info")]
        if folder.suffix in {".dist-info", ".egg-info"} or folder.name == "EGG-INFO":
            metadata += [folder / file for file in ("METADATA", "PKG-INFO") if file in files][:1]
        for package in map(python_package, metadata):
            python.setdefault(package[:2], package)
        if folder.name == "conda-meta":
            conda |= {conda_package(folder / file) for file in files if file.endswith(".json")}
    whole = sorted(package for package in python.values() if package[0] and package[1])
    answer = {"system": system_packages(), "python": whole, "conda": sorted(conda)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
