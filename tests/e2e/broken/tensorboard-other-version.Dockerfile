# suite: tensorboard
# base: tf-1.10-cpu-debian
# fails: test_tensorboard_gives_the_pinned_version
# says: 1\.15\.0.*pinned: 1\.10\.0
ARG BASE
FROM ${BASE}
RUN sed -i "s/1\.10\.0/1.15.0/" /opt/python/lib/python3.6/site-packages/tensorboard/version.py
