"""Load shared libraries as TensorFlow would, and print the files that the loader chose.

Arguments: names as TensorFlow opens them, e.g. libcudnn.so.7. NVIDIA's files carry the full version
in their name (libcudnn.so.7.6.3), so the links are followed; those of the Python package index have
none, so that of the wheel is told, whose RECORD has the file. Loading them needs no GPU.
"""

import ctypes
import glob
import json
import os
import sys
import sysconfig

RTLD_DI_LINKMAP = 2


class LinkMap(ctypes.Structure):
    """The beginning of glibc's `struct link_map`: the name is the path that was opened."""

    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def path_of(library):
    found = ctypes.POINTER(LinkMap)()
    handle = ctypes.c_void_p(library._handle)
    if ctypes.CDLL("libdl.so.2").dlinfo(handle, RTLD_DI_LINKMAP, ctypes.byref(found)):
        return None
    return os.path.realpath(os.fsdecode(found.contents.name))


def wheel_of(path):
    """Return the version of the distribution that brought a file; None if none did."""
    site = sysconfig.get_paths()["purelib"]
    link = os.path.join(site, "nvidia")  # to where the files are for every Python
    path = (path or "/").replace(os.path.realpath(link), link)
    line = os.path.relpath(path, site) + ","
    for record in glob.glob(os.path.join(site, "*.dist-info", "RECORD")):
        with open(record) as stream:
            if any(one.startswith(line) for one in stream):
                name = os.path.basename(os.path.dirname(record))
                return name[: -len(".dist-info")].split("-")[1]
    return None


def loaded(name):
    try:
        path = path_of(ctypes.CDLL(name))
    except OSError as error:
        return {"path": None, "wheel": None, "error": str(error)}
    return {"path": path, "wheel": wheel_of(path), "error": None}


if __name__ == "__main__":
    print(json.dumps({name: loaded(name) for name in sys.argv[1:]}))
