# suite: gpu_loadable
# base: tf-2.3-gpu-ubuntu
# fails: test_environment_hides_no_gpu
# says: CUDA_VISIBLE_DEVICES=-1
# TensorFlow sees no GPU, whatever the engine gives, and computes on the CPU.
ARG BASE
FROM ${BASE}
ENV CUDA_VISIBLE_DEVICES=-1
