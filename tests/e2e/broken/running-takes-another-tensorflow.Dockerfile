# suite: running
# base: tf-2.2-cpu-debian
# fails: test_whoever_requires_tensorflow_has_it
# says: tensorflow-9999
# Without the metadata of its other names, whoever requires TensorFlow brings a second one.
ARG BASE
FROM ${BASE}
RUN rm -r /opt/python/lib/python3.6/site-packages/tensorflow-2.2.3+imgbuild.dist-info \
    && sed -i '/^tensorflow==/d' /opt/python/constraints.txt
