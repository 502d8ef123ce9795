# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_no_unexpected_setuid_program
# says: /usr/bin/git \(4755\)
ARG BASE
FROM ${BASE}
RUN chmod u+s /usr/bin/git
