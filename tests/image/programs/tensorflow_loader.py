"""Let TensorFlow open each library of CUDA by its own function, as it does before it looks for GPUs.

`opened` says by function whether it gave a handle; `loaded` are the files that are mapped then. The
functions return a status through a hidden pointer, whose first word is 0, or from TensorFlow 2.18
on 1, where all is well. Nothing here needs a GPU.
"""

import ctypes
import json
import os
import re

from elf_file import opened
from quiet_tensorflow import tf

FUNCTION = re.compile(r"_ZN.*9DsoLoader\d+(Get\w+DsoHandle|MaybeTryDlopenGPULibraries)Ev")
LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
#: The loaders of other vendors' GPUs, by parts of their names.
OTHERS = re.compile("Hip|Roc|Miopen|Rccl")
MAPPED = re.compile(
    r"(/\S*/lib(?:cu(?:blas|d|fft|pti|rand|s)|nccl|nv)[^/\s]*\.so[.0-9]*)$", re.MULTILINE
)
FINE = (0, 1)


def functions(path):
    """Return the names of the loader's functions, with the symbols that they are exported by."""
    with opened(path) as elf:
        found = filter(None, (FUNCTION.fullmatch(name) for name in elf.defined()))
        return {match.group(1): match.group() for match in found}


def status(library, symbol):
    """Call one function; return the first word of what it gives."""
    answer = (ctypes.c_uint64 * 8)()
    call = getattr(library, symbol)
    call.restype, call.argtypes = None, [ctypes.c_void_p]
    call(ctypes.addressof(answer))
    return answer[0]


def ask():
    folder, found = os.path.dirname(tf.__file__), {}
    for path in (os.path.join(folder, name) for name in LIBRARIES):
        symbols = functions(path) if os.path.exists(path) and not found else {}
        library = ctypes.CDLL(path) if symbols else None
        for name, symbol in symbols.items():
            if not OTHERS.search(name):
                found[name] = status(library, symbol) in FINE
    with open("/proc/self/maps") as stream:
        return {"opened": found, "loaded": sorted(set(MAPPED.findall(stream.read())))}


if __name__ == "__main__":
    print(json.dumps(ask()))
