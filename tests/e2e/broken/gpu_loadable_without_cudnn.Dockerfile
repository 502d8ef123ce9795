# suite: gpu_loadable
# base: tf-2.3-gpu-ubuntu
# fails: test_library_loads\[libcudnn\.so\.7\]
# says: libcudnn\.so\.7: cannot open shared object file
# cuDNN is missing: TensorFlow says so in a warning, and computes on the CPU.
ARG BASE
FROM ${BASE}
RUN rm /usr/lib/x86_64-linux-gnu/libcudnn.so.7*
