# suite: gpu_loadable
# base: tf-2.12-gpu-debian
# fails: test_every_library_is_there_once
# says: libcurand\.so\.10: .*/opt/cuda-12/lib/libcurand\.so\.10
# slow: yes
# The libraries of CUDA 12 beside those of 11: three of them have the same names, and the loader takes either.
ARG BASE
FROM ${BASE}
RUN mkdir -p /opt/cuda-12/lib \
    && cp /opt/python/lib/python3.11/site-packages/nvidia/curand/lib/libcurand.so.10 /opt/cuda-12/lib/ \
    && echo /opt/cuda-12/lib > /etc/ld.so.conf.d/zz-cuda-12.conf && ldconfig
