"""One rank of an MPI job without TensorFlow: add up numbers that fill more than the shared memory.

It calls the MPI that Horovod's library for TensorFlow names, by way of ctypes. The argument is the
size of the tensor in MiB; `wait` in its place: say `ready`, and sleep until somebody ends the job.
Rank 0 prints the result: how many ranks added rightly.
"""

import ctypes
import glob
import json
import os
import sys
import sysconfig
import time
from array import array

from elf_file import opened

# mpi.h of MPICH and of Intel MPI, whose handles are numbers; Open MPI's are addresses.
MPICH = {"comm_world": 0x44000000, "float": 0x4C00040A, "op_sum": 0x58000003}


def soname():
    """Return the name by which Horovod asks for MPI."""
    site = sysconfig.get_paths()["platlib"]
    (library,) = glob.glob(os.path.join(site, "horovod", "tensorflow", "mpi_lib*.so"))
    with opened(library) as elf:
        return next(name for name in elf.needed() if name.startswith("libmpi.so"))


def handle(mpi, name):
    if not hasattr(mpi, "ompi_mpi_comm_world"):
        return ctypes.c_int(MPICH[name])
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + name)))


def number(mpi, function):
    """Return what MPI_Comm_rank or MPI_Comm_size gives."""
    result = ctypes.c_int()
    function(handle(mpi, "comm_world"), ctypes.byref(result))
    return result.value


def total(mpi, numbers):
    """Return the sum of what all ranks bring, arrays of float32."""
    result = array("f", bytes(numbers.itemsize * len(numbers)))
    pointers = (ctypes.c_void_p(one.buffer_info()[0]) for one in (numbers, result))
    kinds = (handle(mpi, name) for name in ("float", "op_sum", "comm_world"))
    if mpi.MPI_Allreduce(*pointers, ctypes.c_int(len(numbers)), *kinds) != 0:
        sys.exit("MPI_Allreduce failed")
    return result


def shared_memory():
    status = os.statvfs("/dev/shm")
    return status.f_frsize * status.f_blocks


def main(argument):
    mpi = ctypes.CDLL(soname(), mode=ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
    if argument == "wait":
        print("ready", flush=True)
        time.sleep(600)
    rank, size = number(mpi, mpi.MPI_Comm_rank), number(mpi, mpi.MPI_Comm_size)
    numbers = array("f", [rank + 1]) * (int(argument) * 2**20 // 4)
    expected = array("f", [size * (size + 1) // 2]) * len(numbers)
    right = total(mpi, numbers).tobytes() == expected.tobytes()
    ranks = int(total(mpi, array("f", [right]))[0])
    mpi.MPI_Finalize()
    if rank == 0:
        print(json.dumps({"size": size, "right": ranks, "shared memory": shared_memory()}))


if __name__ == "__main__":
    main(sys.argv[1])
