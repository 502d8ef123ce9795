# suite: nodes
# base: tf-1.12-cpu-debian
# fails: test_nodes_reach_each_other_without_a_question
# says: Host key verification failed
# slow: yes
ARG BASE
FROM ${BASE}
RUN sed -i 's/StrictHostKeyChecking no/StrictHostKeyChecking ask/' /etc/ssh/ssh_config_mpi
