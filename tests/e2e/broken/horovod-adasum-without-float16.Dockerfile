# suite: horovod
# base: tf-2.2-cpu-debian
# fails: test_adasum_is_exact
# says: Unsupported data type
ARG BASE
FROM ${BASE}
# As Horovod is where its compiler may not use F16C and FMA.
RUN sed -i '/^def _allreduce(/,/^    if name/s/^    if name/    if op == Adasum and tensor.dtype == "float16": raise ValueError("Unsupported data type.")\n&/' \
        /opt/python/lib/python3.6/site-packages/horovod/tensorflow/mpi_ops.py \
    && grep -q 'Unsupported data type' /opt/python/lib/python3.6/site-packages/horovod/tensorflow/mpi_ops.py
