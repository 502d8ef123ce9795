# suite: pins
# base: tf-2.2-cpu-debian
# fails: test_pip_leaves_what_stays
# says: pip would replace .*h5py, .*numpy, .*protobuf, .*tensorflow
# An image on top lets pip choose; the file is still there.
ARG BASE
FROM ${BASE}
ENV PIP_CONSTRAINT=/dev/null
