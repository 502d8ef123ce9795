# suite: nodes
# base: tf-1.12-cpu-debian-intelmpi
# fails: test_lost_node_ends_the_job_with_its_name
# says: goes on 60 s after the node's death
# slow: yes
ARG BASE
FROM ${BASE}
ENV I_MPI_HYDRA_BOOTSTRAP_EXEC=/usr/bin/ssh
