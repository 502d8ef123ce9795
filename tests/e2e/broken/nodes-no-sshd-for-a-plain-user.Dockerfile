# suite: nodes
# base: tf-1.12-cpu-debian
# fails: test_nodes_reach_each_other_without_a_question\[mpiuser\]
# says: /home/mpiuser/.sshd_config.*No such file
# slow: yes
ARG BASE
FROM ${BASE}
RUN rm /home/mpiuser/.sshd_config
