# suite: gpu_loadable
# base: tf-2.3-gpu-ubuntu
# fails: test_environment_hides_no_gpu
# says: NVIDIA_DRIVER_CAPABILITIES=utility
# The engine gives GPUs without libcuda: only nvidia-smi sees them.
ARG BASE
FROM ${BASE}
ENV NVIDIA_DRIVER_CAPABILITIES=utility
