"""Ask the run-time libraries of CUDA for their versions: none of the functions needs a GPU.

Arguments: the names of CUDA's run time, of cuDNN and of NCCL. CUDA's run time before 12 looks for a
driver first, and may answer with an error where there is none: the code is printed beside.
"""

import ctypes
import json
import sys


def through_pointer(library, function):
    """Call a function that returns a status and writes the version."""
    version = ctypes.c_int(0)
    status = getattr(ctypes.CDLL(library), function)(ctypes.byref(version))
    return {"status": status, "version": version.value}


def returned(library, function):
    call = getattr(ctypes.CDLL(library), function)
    call.restype = ctypes.c_size_t
    return {"status": 0, "version": call()}


def answer(ask, library, function):
    """Ask one library; that it cannot be asked is no fault of the others."""
    try:
        return ask(library, function)
    except (OSError, AttributeError) as error:
        return {"status": str(error), "version": None}


def versions(cudart, cudnn, nccl):
    return {
        "cuda": answer(through_pointer, cudart, "cudaRuntimeGetVersion"),
        "cudnn": answer(returned, cudnn, "cudnnGetVersion"),
        "nccl": answer(through_pointer, nccl, "ncclGetVersion"),
    }


if __name__ == "__main__":
    print(json.dumps(versions(*sys.argv[1:])))
