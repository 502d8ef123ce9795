"""Answer what Horovod's setup asks of TensorFlow, without importing TensorFlow for arm64.

$TENSORFLOW is its folder. The flags are those that TensorFlow's own sysconfig.get_compile_flags()
returns: for 2.12 to 2.21, and for both architectures, C++17 and at most 64 bytes of alignment.
$CXX11_ABI is a fact about the wheel (images/evidence.json).
"""

import glob
import os

ROOT = os.environ["TENSORFLOW"]
(_folder,) = glob.glob(ROOT + "-[0-9]*.dist-info") or glob.glob(ROOT + "_cpu*-[0-9]*.dist-info")
__version__ = os.path.basename(_folder).split("-")[1].split("+")[0]


class sysconfig:  # noqa: N801 - TensorFlow's own name
    """The three functions that Horovod calls."""

    @staticmethod
    def get_include():
        return ROOT + "/include"

    @staticmethod
    def get_link_flags():
        return ["-L" + ROOT, "-l:libtensorflow_framework.so.2"]

    @staticmethod
    def get_compile_flags():
        abi = "-D_GLIBCXX_USE_CXX11_ABI=" + os.environ["CXX11_ABI"]
        return ["-I" + ROOT + "/include", abi, "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64"]
