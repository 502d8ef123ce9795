"""Look up, as the loader does, every library that any ELF file of this system names (DT_NEEDED).

Nothing is run or loaded: a file that needs a GPU's driver, or another to be loaded first, is looked
at like any other. `missing` are the names that were not found, with the file that asks, and with
the files elsewhere that are called so: what loads those first may satisfy it. ld.so(8) has the
order: RPATH where there is no RUNPATH, LD_LIBRARY_PATH, RUNPATH, the cache, the default folders.
"""

import json
import os
import re
import stat
import subprocess

from elf_file import opened

DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
CACHED = re.compile(r"^\t(\S+) \(.*x86-64.*\) => (\S+)$", re.MULTILINE)
MAGIC = b"\x7fELF"


def candidates(root):
    """Give the files of one file system that may be ELF: libraries, and what can be run."""
    device = os.lstat(root).st_dev
    for place, folders, names in os.walk(root):
        folders[:] = [f for f in folders if os.lstat(os.path.join(place, f)).st_dev == device]
        for path in (os.path.join(place, name) for name in names):
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and (".so" in path or mode & 0o111):
                yield path


def is_elf(path):
    with open(path, "rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def cached_names():
    """Return the names in the loader's cache, with their files."""
    command = ["/sbin/ldconfig", "-p"]
    return dict(CACHED.findall(subprocess.check_output(command, universal_newlines=True)))


def folders(text, origin):
    """Return the folders of a search path; an empty entry is the folder of whoever starts it."""
    expanded = text.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", origin)
    return [folder for folder in expanded.split(":") if folder]


def searched(elf, path):
    """Return the folders that come before the cache for this file."""
    origin = os.path.dirname(os.path.realpath(path))
    rpath, runpath = (
        [folder for text in texts for folder in folders(text, origin)]
        for texts in (elf.rpath(), elf.runpath())
    )
    given = folders(os.environ.get("LD_LIBRARY_PATH", ""), origin)
    return ([] if runpath else rpath) + given + runpath


def found(name, before, cache):
    if "/" in name:
        return os.path.exists(name)
    places = [os.path.join(folder, name) for folder in before]
    places += [cache[name]] if name in cache else []
    places += [os.path.join(folder, name) for folder in DEFAULT]
    return any(os.path.exists(place) for place in places)


def links(root="/"):
    paths = [path for path in candidates(root) if is_elf(path)]
    cache, places = cached_names(), {}
    for path in paths:
        places.setdefault(os.path.basename(path), []).append(path)
    missing, unread = [], {}
    for path in paths:
        try:
            with opened(path) as elf:
                before, needed = searched(elf, path), elf.needed()
        except ValueError as error:
            unread[path] = str(error)
            continue
        lost = [name for name in needed if not found(name, before, cache)]
        missing += [[path, name, places.get(name, [])] for name in lost]
    return {"files": len(paths), "missing": missing, "unread": unread}


if __name__ == "__main__":
    print(json.dumps(links()))
