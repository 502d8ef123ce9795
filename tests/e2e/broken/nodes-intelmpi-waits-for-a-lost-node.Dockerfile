# suite: nodes
# base: tf-1.12-cpu-debian-intelmpi
# fails: test_lost_node_ends_the_job_with_its_name
# says: goes on 60 s after the node's death
# slow: yes
ARG BASE
FROM ${BASE}
RUN printf '#!/bin/sh\nexec ssh -F /etc/ssh/ssh_config_mpi "$@"\n' > /usr/local/bin/mpiexec-ssh
