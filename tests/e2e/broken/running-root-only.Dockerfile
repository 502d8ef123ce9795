# suite: running
# base: tf-1.10-cpu-debian
# fails: test_two_ranks_add_up\[mpiuser
# says: module 'numpy' has no attribute 'full'
# slow: yes
ARG BASE
FROM ${BASE}
RUN chmod -R o-rx,g-rx /opt/python/lib/python3.6/site-packages/numpy
