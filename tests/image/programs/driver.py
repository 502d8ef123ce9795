"""Ask the NVIDIA driver, through libcuda alone, what it is and which GPUs it has.

Nothing of TensorFlow or CUDA is loaded, so that what is wrong with the machine is not taken for a
fault of the image. What cannot be asked is null.
"""

import ctypes
import json
import re

LIBRARY = "libcuda.so.1"
KERNEL_MODULE = "/proc/driver/nvidia/version"
CAPABILITY_MAJOR, CAPABILITY_MINOR, COMPUTE_MODE = 75, 76, 20  # CUdevice_attribute, cuda.h
NAME_BYTES = 256


def kernel_version(path=KERNEL_MODULE):
    """Return the version of the kernel module: the first number of two dots or one in its line."""
    try:
        with open(path) as stream:
            line = stream.readline()
    except OSError:
        return None
    found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)*\b", line)
    return found.group() if found else None


def number(call, *arguments):
    """Return what a function writes into its first argument; None where it fails."""
    value = ctypes.c_int(0)
    return value.value if call(ctypes.byref(value), *arguments) == 0 else None


def name_of(cuda, device):
    buffer = ctypes.create_string_buffer(NAME_BYTES)
    cuda.cuDeviceGetName(buffer, NAME_BYTES, device)
    return buffer.value.decode(errors="replace") or "no name"


def device(cuda, ordinal):
    handle = number(cuda.cuDeviceGet, ordinal)
    parts = [
        number(cuda.cuDeviceGetAttribute, attribute, handle)
        for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR)
    ]
    mode = number(cuda.cuDeviceGetAttribute, COMPUTE_MODE, handle)
    return {"name": name_of(cuda, handle), "capability": "{}.{}".format(*parts), "mode": mode}


def ask(kernel):
    """Return all that libcuda says."""
    answer = {"kernel": kernel, "error": None, "cuda": None, "init": None, "devices": []}
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return dict(answer, error=str(error))
    answer["cuda"] = number(cuda.cuDriverGetVersion)
    answer["init"] = cuda.cuInit(0)
    if answer["init"] == 0:
        count = number(cuda.cuDeviceGetCount) or 0
        answer["devices"] = [device(cuda, ordinal) for ordinal in range(count)]
    return answer


if __name__ == "__main__":
    print(json.dumps(ask(kernel_version())))
