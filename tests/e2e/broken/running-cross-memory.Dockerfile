# suite: running
# base: tf-1.12-cpu-debian
# fails: test_mpi_says_nothing\[unknown
# says: Read -1, expected \d+, errno = 1
# slow: yes
ARG BASE
FROM ${BASE}
ENV OMPI_MCA_btl_vader_single_copy_mechanism=cma
