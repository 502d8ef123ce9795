# suite: frameworks
# base: tf-1.15-cpu-debian
# fails: test_checkpoint_is_the_best_epoch_and_not_the_last
# says: losses \[1\.3
ARG BASE
FROM ${BASE}
RUN sed -i 's/if self.monitor_op(current, self.best):/if True:/' \
    /opt/python/lib/python3.6/site-packages/tensorflow_core/python/keras/callbacks.py
