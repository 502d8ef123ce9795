"""Remove the files that only compilers read from a tree of NVIDIA's packages; update their RECORDs.

    leave_out.py SITE_PACKAGES

ptxas stays, because XLA runs it. libdevice stays, because XLA links it into its kernels.
"""

import glob
import os
import shutil
import sys

import slim  # of images/files/packages

NVVM = "nvidia/cuda_nvcc/nvvm"
COMPILING = ("nvidia/*/include", "nvidia/*/lib/*.a", NVVM + "/include", NVVM + "/lib64")


def main(tree):
    """Remove the files and folders, then their lines of the RECORDs."""
    removed = set()
    for pattern in COMPILING:
        for path in glob.glob(os.path.join(tree, pattern)):
            if os.path.isdir(path):
                removed |= {
                    os.path.join(at, name) for at, _, names in os.walk(path) for name in names
                }
                shutil.rmtree(path)
            else:
                removed.add(path)
                os.remove(path)
    slim.update_records(tree, {os.path.relpath(path, tree) for path in removed})


if __name__ == "__main__":
    main(sys.argv[1])
