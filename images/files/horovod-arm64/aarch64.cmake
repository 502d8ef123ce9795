# Compile for arm64 with Debian's compiler and the libraries in /sysroot. CMake reads this file because of the variable
# CMAKE_TOOLCHAIN_FILE in the environment (3.21 and newer).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(root /sysroot)
# In both folders are libraries that libmpi needs. Without them, FindMPI finds no MPI.
set(libraries "-Wl,-rpath-link,${root}/usr/lib/aarch64-linux-gnu -Wl,-rpath-link,${root}/lib/aarch64-linux-gnu")
set(CMAKE_EXE_LINKER_FLAGS_INIT "${libraries}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${libraries}")
set(CMAKE_FIND_ROOT_PATH ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# Otherwise the RUNPATH of Horovod's library is the path of the sysroot.
set(CMAKE_SKIP_RPATH ON CACHE BOOL "")
# Name MPI's files, because FindMPI would run a compiler for arm64, or take another mpicxx of the building machine.
set(MPI_CXX_COMPILER /bin/false CACHE FILEPATH "")
set(MPIEXEC_EXECUTABLE /bin/true CACHE STRING "")
set(MPI_CXX_LIB_NAMES "mpi_cxx;mpi" CACHE STRING "")
set(MPI_mpi_LIBRARY ${root}/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so CACHE STRING "")
set(MPI_mpi_cxx_LIBRARY ${root}/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi_cxx.so CACHE STRING "")
set(MPI_CXX_HEADER_DIR ${root}/usr/lib/aarch64-linux-gnu/openmpi/include CACHE STRING "")
set(MPI_CXX_COMPILER_INCLUDE_DIRS "" CACHE STRING "")
set(MPI_CXX_ADDITIONAL_INCLUDE_VARS "" CACHE STRING "")
