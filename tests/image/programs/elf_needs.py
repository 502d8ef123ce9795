"""Print what the shared libraries of Python packages ask of the loader.

Arguments: the packages' folders below site-packages, as shell patterns. `needed` are the sonames
that none of the packages brings itself, each with the files that ask for it; `calls` are the names
that begin with `nccl` and are taken from another library, by file.
"""

import fnmatch
import json
import os
import sys
import sysconfig

from elf_file import opened


def libraries(site, patterns):
    folders = [n for n in sorted(os.listdir(site)) if any(fnmatch.fnmatch(n, p) for p in patterns)]
    for folder in folders:
        for place, _, names in sorted(os.walk(os.path.join(site, folder))):
            yield from (os.path.join(place, name) for name in sorted(names) if ".so" in name)


def is_elf(path):
    with open(path, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


def needs(site, patterns):
    paths = [path for path in libraries(site, patterns) if os.path.isfile(path) and is_elf(path)]
    brought = {os.path.basename(path) for path in paths}
    needed, calls = {}, {}
    for path in paths:
        name = os.path.relpath(path, site)
        with opened(path) as elf:
            for soname in elf.needed():
                needed.setdefault(soname, []).append(name)
            taken = [symbol for symbol in elf.undefined() if symbol.startswith("nccl")]
        if taken:
            calls[name] = sorted(taken)
    missing = {soname: files for soname, files in needed.items() if soname not in brought}
    return {"files": len(paths), "needed": missing, "calls": calls}


if __name__ == "__main__":
    print(json.dumps(needs(sysconfig.get_paths()["platlib"], sys.argv[1:])))
