"""Run the check at container start on made-up GPUs without any other fault.

    gpu_start_verdicts.py CUDA CAPABILITY...

CUDA is the newest that the driver knows, such as 12050. Prints, for each capability, the paragraph,
which is empty if the check is silent, and whether TensorFlow can use the GPU.
"""

import json
import sys

sys.path.insert(0, "/usr/local/lib/imgbuild")
import gpu_start


class Driver:
    """CUDA's driver interface, with one GPU, and without NVML."""

    def __init__(self, cuda, capability):
        self.cuda = cuda
        self.numbers = dict(zip((75, 76), map(int, capability.split("."))))

    def load(self, name):
        if not name.startswith("libcuda"):
            raise OSError(name + ": cannot open shared object file: No such file or directory")
        return self

    def cuDriverGetVersion(self, version):
        version._obj.value = self.cuda
        return 0

    def cuInit(self, flags):
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device, index):
        return 0

    def cuDeviceGetName(self, name, size, device):
        name.value = b"made-up GPU"
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = self.numbers[attribute]
        return 0


def judge(cuda, capability):
    gpu_start.ctypes.CDLL = Driver(cuda, capability).load
    return list(gpu_start.find_verdict())


if __name__ == "__main__":
    print(json.dumps({name: judge(int(sys.argv[1]), name) for name in sys.argv[2:]}))
