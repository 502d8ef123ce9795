# suite: frameworks
# base: tf-2.2-cpu-debian
# fails: test_code_of_tensorflow_1_trains_and_restores
# says: has no attribute 'dense'
# The TensorFlow 1 that TensorFlow 2 contains has lost a layer.
ARG BASE
FROM ${BASE}
RUN sed -i '/ dense$/d' /opt/python/lib/python3.6/site-packages/tensorflow/_api/v2/compat/v1/layers/__init__.py
