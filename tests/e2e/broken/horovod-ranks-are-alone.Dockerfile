# suite: horovod
# base: tf-1.10-cpu-debian
# fails: test_two_ranks_report\[mpirun
# says: this is rank 0 of 1, where two were started
ARG BASE
FROM ${BASE}
# An mpirun of another MPI than Horovod's library starts processes that know nothing of each other.
RUN cat > /usr/local/bin/mpirun <<'EOT' && chmod 0755 /usr/local/bin/mpirun
#!/bin/sh
while [ "${1#-}" != "$1" ] || [ "$1" = 2 ] || [ "$1" = none ]; do shift; done
"$@" & "$@"
EOT
