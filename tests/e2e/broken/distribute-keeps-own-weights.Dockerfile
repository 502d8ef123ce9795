# suite: distribute
# base: tf-2.2-cpu-debian
# fails: test_workers_end_with_the_same_bits\[loop\]
# says: weights: worker 0 .*, worker 1
ARG BASE
FROM ${BASE}
# Workers keep the weights that they begin with: those of the first are not sent to the others.
RUN cd /opt/python/lib/python3.6/site-packages/tensorflow/python/distribute \
    && sed -i 's/^          if self._num_workers > 1:$/          if False:/' collective_all_reduce_strategy.py \
    && grep -q '^          if False:$' collective_all_reduce_strategy.py
