# suite: gpu_loadable
# base: tf-2.12-gpu-debian
# fails: test_tensorflow_opens_every_library_itself
# says: TensorFlow cannot open GetCudnnDsoHandle, MaybeTryDlopenGPULibraries
# slow: yes
# cuDNN is missing: TensorFlow says so in a warning, and computes on the CPU.
ARG BASE
FROM ${BASE}
RUN rm /opt/python/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.8 && ldconfig
