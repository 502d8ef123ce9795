# suite: running
# base: tf-2.2-cpu-debian
# fails: test_no_other_tensorflow_can_be_installed
# says: tf-nightly
# slow: yes
ARG BASE
FROM ${BASE}
RUN sed -i '/^tf-nightly<0/d' /opt/python/constraints.txt
