"""One rank of a job over several nodes, of MPI alone: TensorFlow need not start for it.

Arguments: the folder for `rank-N.json`, and the number of ranks.
"""

import ctypes
import socket
import sys
from array import array

from mpi_rank import number, soname, total
from rank_file import write

folder, size = sys.argv[1], int(sys.argv[2])
mpi = ctypes.CDLL(soname(), mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
rank, found = number(mpi, mpi.MPI_Comm_rank), number(mpi, mpi.MPI_Comm_size)
if found != size:  # the launcher and the library are of two MPIs: each process is alone
    sys.exit("this is rank {} of {}, where {} were started".format(rank, found, size))
if int(total(mpi, array("f", [rank + 1]))[0]) != size * (size + 1) // 2:
    sys.exit("rank {} did not get the sum of all".format(rank))
mpi.MPI_Finalize()
result = {"rank": rank, "size": found, "node": socket.gethostname()}
write(folder, rank, dict(result, encoding=sys.stdout.encoding))
