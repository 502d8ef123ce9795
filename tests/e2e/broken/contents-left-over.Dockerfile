# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_nothing_is_left_over
# says: /tmp/horovod/setup\.py
ARG BASE
FROM ${BASE}
RUN mkdir /tmp/horovod && touch /tmp/horovod/setup.py
