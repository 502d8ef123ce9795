# suite: horovod
# base: tf-2.2-cpu-debian
# fails: test_training_by_data_of_their_own_leaves_ranks_equal\[horovodrun-fit\]
# says: fit: the ranks' weights differ by .*: gradients were not reduced
ARG BASE
FROM ${BASE}
# As under Keras 3: Keras does not call what Horovod's optimizer overrides. Nothing says an error.
RUN sed -i 's/^        def _aggregate_gradients(/        def _unused(/; s/_aggregated_gradients = False/_aggregated_gradients = True/' \
        /opt/python/lib/python3.6/site-packages/horovod/_keras/__init__.py \
    && grep -q 'def _unused' /opt/python/lib/python3.6/site-packages/horovod/_keras/__init__.py
