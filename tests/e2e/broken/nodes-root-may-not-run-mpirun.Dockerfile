# suite: nodes
# base: tf-1.12-cpu-debian
# fails: test_every_node_runs_one_rank\[root-mpirun-2\]
# says: mpirun has detected an attempt to run as root
# slow: yes
ARG BASE
FROM ${BASE}
ENV OMPI_ALLOW_RUN_AS_ROOT=0
