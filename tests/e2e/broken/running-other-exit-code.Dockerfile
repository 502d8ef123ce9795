# suite: running
# base: tf-1.10-cpu-debian
# fails: test_what_cannot_be_started_ends_as_in_a_shell\[no-such-program
# says: ends with exit code 2, not 127
ARG BASE
FROM ${BASE}
# As dumb-init alone does it.
ENTRYPOINT ["/opt/python/bin/dumb-init", "--"]
