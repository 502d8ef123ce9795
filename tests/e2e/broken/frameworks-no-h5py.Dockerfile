# suite: frameworks
# base: tf-2.2-cpu-debian
# fails: test_functional_model_has_its_own_layer
# says: requires h5py
ARG BASE
FROM ${BASE}
RUN rm -r /opt/python/lib/python3.6/site-packages/h5py
