# suite: nodes
# base: tf-1.12-cpu-debian-intelmpi
# fails: test_lost_node_ends_the_job_with_its_name
# says: goes on 60 s after the node's death
# slow: yes
ARG BASE
FROM ${BASE}
# Left to itself mpiexec mostly waits, but ends where a rank that is left notices the loss first.
RUN printf '%s\n' '#!/bin/sh' 'ssh -F /etc/ssh/ssh_config_mpi "$@"' 'code=$?' \
    '[ "$code" != 255 ] || kill -STOP "$PPID"' 'exit "$code"' > /usr/local/bin/mpiexec-ssh
