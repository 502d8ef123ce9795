"""Make a tree of installed Python packages smaller; keep each file that a program could need.

    slim.py SITE_PACKAGES [--below SITE_PACKAGES]

Remove the tests of packages that bring megabytes of them, and symbols of shared libraries that only
a debugger reads. Exported symbols stay, for example for custom operations. If the tree --below has
a bundled library with the same name and SONAME, link to it. Update the RECORD of each distribution.
Runs with the image's own Python: 3.6.
"""

import argparse
import base64
import csv
import hashlib
import os
import shutil
import struct
import subprocess

#: Packages whose folders called "tests" are removed. "testing" stays: it is an interface of NumPy.
TESTED = ("numpy", "scipy", "h5py", "psutil")
PAGE = 4096
PT_LOAD, PT_DYNAMIC = 1, 2
DT_STRTAB, DT_SONAME = 5, 14


def main():
    """Slim the tree that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree")
    parser.add_argument("--below")
    arguments = parser.parse_args()
    changed = remove_tests(arguments.tree)
    libraries = list(shared_libraries(arguments.tree))
    if arguments.below:
        changed += [path for path in libraries if link(path, arguments.tree, arguments.below)]
    changed += [path for path in libraries if not os.path.islink(path) and strip(path)]
    update_records(arguments.tree, {os.path.relpath(path, arguments.tree) for path in changed})


def remove_tests(tree):
    """Remove the tests of some packages; return their files."""
    removed = []
    for package in TESTED:
        for folder, _, _ in list(os.walk(os.path.join(tree, package))):
            if os.path.basename(folder) == "tests" and os.path.isdir(folder):
                removed += [
                    os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                ]
                shutil.rmtree(folder)
    return removed


def shared_libraries(tree):
    """Yield every shared library of the tree."""
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            if ".so" in name and not os.path.islink(path) and is_elf(path):
                yield path


def is_elf(path):
    """Return whether a file is a 64-bit little-endian ELF file, as on x86-64 and arm64."""
    with open(path, "rb") as stream:
        return stream.read(6) == b"\x7fELF\x02\x01"


def strip(path):
    """Remove symbols that only debuggers read; return whether the file was replaced.

    If patchelf moved segments of a library, strip damages it, and the loader refuses it
    ("address/offset not page-aligned"). Such libraries stay as they are.
    """
    smaller = path + ".stripped"
    command = [
        os.environ.get("STRIP", "strip"),
        "--strip-unneeded",
        "--preserve-dates",
        "-o",
        smaller,
        path,
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    made = subprocess.call(command, **quiet) == 0
    if made and loadable(smaller) and os.path.getsize(smaller) < os.path.getsize(path):
        shutil.copymode(path, smaller)
        os.replace(smaller, path)
        return True
    if os.path.exists(smaller):
        os.remove(smaller)
    return False


def link(path, tree, below):
    """Replace a bundled library by a link to the same one below; return whether there is one.

    auditwheel puts a hash of the original library into the name. Its copies differ only in the
    search path. The loader uses the first library with a SONAME.
    """
    name = os.path.basename(path)
    for folder in sorted(os.listdir(below)):
        other = os.path.join(below, folder, name)
        if folder.endswith(".libs") and os.path.isfile(other) and soname(other) == soname(path):
            target = os.path.join(tree, folder, name)
            os.remove(path)
            os.symlink(os.path.relpath(target, os.path.dirname(path)), path)
            return True
    return False


def loadable(path):
    """Return whether the loader can map the file: each segment at its offset in a page."""
    segments = [one for one in program_headers(path) if one[0] == PT_LOAD]
    return bool(segments) and all(
        (address - offset) % PAGE == 0 for _, offset, address, _ in segments
    )


def program_headers(path):
    """Return type, offset, address and size in the file of each segment. Source: elf(5)."""
    with open(path, "rb") as stream:
        start = stream.read(64)
        (table,) = struct.unpack_from("<Q", start, 32)
        size, count = struct.unpack_from("<HH", start, 54)
        stream.seek(table)
        data = stream.read(size * count)
    headers = []
    for at in range(0, size * count, size):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, at)
        headers.append((kind, offset, address, length))
    return headers


def soname(path):
    """Return the name by which the loader knows the library; None if it has none."""
    headers = program_headers(path)
    dynamic = [one for one in headers if one[0] == PT_DYNAMIC]
    if not dynamic:
        return None
    with open(path, "rb") as stream:
        stream.seek(dynamic[0][1])
        data = stream.read(dynamic[0][3])
        entries = dict(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
        if DT_SONAME not in entries or DT_STRTAB not in entries:
            return None
        stream.seek(file_offset(headers, entries[DT_STRTAB]) + entries[DT_SONAME])
        return stream.read(PAGE).split(b"\0")[0]


def file_offset(headers, address):
    """Return where in the file an address is."""
    for kind, offset, start, length in headers:
        if kind == PT_LOAD and start <= address < start + length:
            return address - start + offset
    raise ValueError("no segment holds the address %#x" % address)


def update_records(tree, changed):
    """Write the changed files' hashes and sizes into each distribution's RECORD."""
    for folder in sorted(os.listdir(tree)):
        path = os.path.join(tree, folder, "RECORD")
        if folder.endswith(".dist-info") and os.path.isfile(path):
            update_record(path, tree, changed)


def update_record(path, tree, changed):
    """Remove the lines of missing files, and update those of changed ones. Source: PEP 376."""
    with open(path, encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    if not any(row and os.path.normpath(row[0]) in changed for row in rows):
        return
    kept = [described(row, tree, changed) for row in rows if row]
    with open(path, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(row for row in kept if row)


def described(row, tree, changed):
    """Return the row with the file's present hash and size; None if the file is gone."""
    name = os.path.normpath(row[0])
    path = os.path.join(tree, name)
    if name not in changed:
        return row
    if os.path.islink(path):  # its target is in a layer below
        return [row[0], "", ""]
    if not os.path.exists(path):
        return None
    with open(path, "rb") as stream:
        digest = hashlib.sha256(stream.read()).digest()
    text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return [row[0], "sha256=" + text, str(os.path.getsize(path))]


if __name__ == "__main__":
    main()
