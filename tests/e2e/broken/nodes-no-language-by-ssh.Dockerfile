# suite: nodes
# base: tf-1.12-cpu-debian
# fails: test_ranks_write_the_text_of_the_image\[root-mpirun-2\]
# says: ANSI_X3.4-1968
# slow: yes
ARG BASE
FROM ${BASE}
RUN sed -i '/^AcceptEnv/d' /etc/ssh/sshd_config
