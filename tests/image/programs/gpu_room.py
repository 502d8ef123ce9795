"""Ask how much memory of the first GPU is free, and allocate some, without TensorFlow.

Argument: how many bytes to allocate, 0 for none. Prints the bytes that are free, and CUDA's first
error: 0 for none, 2 where there is no room, 46 where the GPU serves one process at a time.
"""

import ctypes
import json
import sys


def room(cuda, wanted):
    device, context, where = ctypes.c_int(0), ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    steps = [
        lambda: cuda.cuInit(0),
        lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
        lambda: cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        lambda: cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
    ]
    if wanted:
        steps.append(lambda: cuda.cuMemAlloc_v2(ctypes.byref(where), ctypes.c_size_t(wanted)))
    error = next((code for code in (step() for step in steps) if code), 0)
    return {"free": free.value, "wanted": wanted, "error": error}


if __name__ == "__main__":
    print(json.dumps(room(ctypes.CDLL("libcuda.so.1"), int(sys.argv[1]))))
