# suite: gpu_built
# base: tf-2.3-gpu-ubuntu
# fails: test_horovod_calls_nccl
# says: of NCCL Horovod calls \[.*ncclAllReducX
# Horovod was compiled without NCCL's allreduce: it would reduce over MPI, and nobody would notice.
ARG BASE
FROM ${BASE}
RUN sed -i 's/ncclAllReduce/ncclAllReducX/g' \
    /opt/python/lib/python3.6/site-packages/horovod/tensorflow/mpi_lib*.so
