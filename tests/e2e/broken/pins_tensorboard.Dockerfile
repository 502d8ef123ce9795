# suite: pins
# base: tf-2.2-cpu-debian
# fails: test_pin\[tensorboard\]
# says: tensorboard: pinned 2\.2\.2, the image has 2\.1\.1
# TensorBoard's code is of another release than its metadata say.
ARG BASE
FROM ${BASE}
RUN sed -i "s/^VERSION = .*/VERSION = '2.1.1'/" \
    /opt/python/lib/python3.6/site-packages/tensorboard/version.py
