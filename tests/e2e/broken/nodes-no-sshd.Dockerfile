# suite: nodes
# base: tf-1.10-cpu-debian
# fails: test_nodes_reach_each_other_without_a_question\[root\]
# says: /usr/sbin/sshd.*No such file
ARG BASE
FROM ${BASE}
RUN rm /usr/sbin/sshd
