# suite: frameworks
# base: tf-1.10-cpu-debian
# fails: test_early_stopping_ends_the_training
# says: 40 epochs
ARG BASE
FROM ${BASE}
RUN sed -i 's/self.model.stop_training = True/pass/' \
    /opt/python/lib/python3.6/site-packages/tensorflow/python/keras/callbacks.py
