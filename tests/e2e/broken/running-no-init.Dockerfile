# suite: running
# base: tf-1.10-cpu-debian
# fails: test_entry_point
# says: the entry point is \[\]
# slow: yes
ARG BASE
FROM ${BASE}
ENTRYPOINT []
