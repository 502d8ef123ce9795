# suite: nodes
# base: tf-1.12-cpu-debian
# fails: test_every_node_runs_one_rank\[root-mpirun-2\]
# says: Node: +b\s+Executable: +\S*python
# slow: yes
ARG BASE
FROM ${BASE}
RUN rm /usr/local/bin/python
