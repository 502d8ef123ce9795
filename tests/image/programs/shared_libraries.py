"""Load shared libraries as TensorFlow would, and print the files that the loader chose.

Arguments: names as TensorFlow opens them, e.g. libcudnn.so.7. NVIDIA's files carry the full version
in their name (libcudnn.so.7.6.3), so the links are followed. Loading them needs no GPU.
"""

import ctypes
import json
import os
import sys

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


def loaded(name):
    try:
        return {"path": path_of(ctypes.CDLL(name)), "error": None}
    except OSError as error:
        return {"path": None, "error": str(error)}


if __name__ == "__main__":
    print(json.dumps({name: loaded(name) for name in sys.argv[1:]}))
