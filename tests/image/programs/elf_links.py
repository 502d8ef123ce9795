"""Look up, as the loader does, every library that any ELF file of this system names (DT_NEEDED).

Nothing is run or loaded: a file that needs a GPU's driver, or another file to be loaded first, is
looked at like any other. `missing` has the names that were not found, each with the file that needs
it and with the files elsewhere that have this name: a program that loads one of those first may
satisfy it.

ld.so(8) has the order: RPATH if there is no RUNPATH, LD_LIBRARY_PATH, RUNPATH, the cache, the default
folders. A library inherits the RPATH of the files that load it, but never their RUNPATH. So each
file that no other file needs is loaded on paper, with all libraries below it.
"""

import collections
import json
import os
import re
import stat
import subprocess

from elf_file import opened

MACHINE = os.uname().machine
#: The folders that Debian's loader searches last, by `ld.so --list-diagnostics`, and those of others.
DEFAULT = (
    *("/lib/{}-linux-gnu".format(MACHINE), "/usr/lib/{}-linux-gnu".format(MACHINE), "/lib"),
    *("/usr/lib",),
    *("/lib64", "/usr/lib64"),
)
CACHED = re.compile(r"^\t(\S+) \(.*(?:x86-64|AArch64).*\) => (\S+)$", re.MULTILINE)
MAGIC = b"\x7fELF"

#: What the loader reads of a file.
Facts = collections.namedtuple("Facts", "needed rpath runpath soname")


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


def read_all(paths):
    """Return the facts of each file, and for each file that cannot be read the reason."""
    known, unread = {}, {}
    for path in paths:
        try:
            with opened(path) as elf:
                known[path] = Facts(elf.needed(), elf.rpath(), elf.runpath(), elf.soname())
        except ValueError as error:
            unread[path] = str(error)
    return known, unread


def folders(texts, origin):
    """Return the folders of search paths; an empty entry is the folder of whoever starts it."""
    expanded = [text.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", origin) for text in texts]
    return [folder for text in expanded for folder in text.split(":") if folder]


class Loader:
    """Loads files on paper: `known` are the facts of all files."""

    def __init__(self, known):
        self.known = known
        self.cache = cached_names()
        self.loaded = set()

    def load(self, root):
        """Give the file that needs it, and the name, for each library that is not found."""
        names, files = set(), {root}
        waiting = collections.deque([(root, [])])
        while waiting:
            path, inherited = waiting.popleft()
            real = os.path.realpath(path)
            self.loaded.add(real)
            facts = self.known.get(real)
            if facts is None:
                continue
            origin = os.path.dirname(path)
            runpath = folders(facts.runpath, origin)
            rpath = ([] if runpath else folders(facts.rpath, origin)) + inherited
            given = folders([os.environ.get("LD_LIBRARY_PATH", "")], origin)
            before = ([] if runpath else rpath) + given + runpath
            for name in facts.needed:
                if name in names:
                    continue
                place = self.find(name, before)
                if place is None:
                    yield real, name
                    continue
                names.add(name)
                found = os.path.realpath(place)
                if found not in files:
                    files.add(found)
                    names.update(self.known[found].soname if found in self.known else ())
                    waiting.append((place, rpath))

    def find(self, name, before):
        """Return the path of a library; `before` are the folders that come before the cache."""
        if "/" in name:
            places = [name]
        else:
            places = [os.path.join(folder, name) for folder in before]
            places += [self.cache[name]] if name in self.cache else []
            places += [os.path.join(folder, name) for folder in DEFAULT]
        return next((place for place in places if os.path.exists(place)), None)


def links(root="/"):
    paths = [path for path in candidates(root) if is_elf(path)]
    known, unread = read_all(paths)
    places = {}
    for path in paths:
        places.setdefault(os.path.basename(path), []).append(path)
    needed = {name for facts in known.values() for name in facts.needed}
    loader, missing = Loader(known), {}
    # The files that nothing needs come first. A file that none of them loads is loaded by itself.
    for path in sorted(known, key=lambda path: not needed.isdisjoint(names_of(path, known[path]))):
        if os.path.realpath(path) not in loader.loaded:
            missing.update(dict.fromkeys(loader.load(path)))
    lost = [[path, name, places.get(name, [])] for path, name in missing]
    return {"files": len(paths), "missing": lost, "unread": unread}


def names_of(path, facts):
    return [os.path.basename(path)] + facts.soname


if __name__ == "__main__":
    print(json.dumps(links()))
