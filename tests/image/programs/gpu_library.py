"""Load one shared library as TensorFlow would, and print the file that the loader chose.

Argument: the name under which TensorFlow opens it, e.g. libcudnn.so.7. NVIDIA's files carry the
full version in their name (libcudnn.so.7.6.3), and loading one needs no GPU.
"""

import ctypes
import json
import os
import sys


def mapped(name):
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/" in line}
    return sorted(path for path in paths if os.path.basename(path).startswith(name))


ctypes.CDLL(sys.argv[1])
print(json.dumps({"paths": mapped(sys.argv[1])}))
