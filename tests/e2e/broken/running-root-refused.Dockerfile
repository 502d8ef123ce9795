# suite: running
# base: tf-1.10-cpu-debian
# fails: test_two_ranks_add_up\[root
# says: mpirun has detected an attempt to run as root
ARG BASE
FROM ${BASE}
ENV OMPI_ALLOW_RUN_AS_ROOT=0
