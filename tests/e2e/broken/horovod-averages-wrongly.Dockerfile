# suite: horovod
# base: tf-2.2-cpu-debian
# fails: test_allreduce_averages_exactly
# says: mean float32 on rank
# slow: yes
ARG BASE
FROM ${BASE}
# An allreduce that does not divide by the number of ranks.
RUN sed -i 's/^    op = handle_average_backwards_compatibility(op, average)$/    op = Sum/' \
        /opt/python/lib/python3.6/site-packages/horovod/tensorflow/__init__.py \
    && grep -q '^    op = Sum$' /opt/python/lib/python3.6/site-packages/horovod/tensorflow/__init__.py
