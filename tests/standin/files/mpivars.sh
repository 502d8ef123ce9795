#!/bin/sh
# Sets the environment of this stand-in for Intel MPI; an argument (release_mt) changes nothing.
I_MPI_ROOT={root}
export I_MPI_ROOT
PATH="$I_MPI_ROOT/intel64/bin:$PATH"
LD_LIBRARY_PATH="$I_MPI_ROOT/intel64/lib/release_mt:$I_MPI_ROOT/intel64/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
MANPATH="$I_MPI_ROOT/man:$MANPATH"
export PATH LD_LIBRARY_PATH MANPATH
