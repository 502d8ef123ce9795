# suite: gpu_loadable
# base: tf-2.3-gpu-ubuntu
# fails: test_environment_requires_the_pinned_cuda
# says: NVIDIA_REQUIRE_CUDA is cuda>=99\.0, not cuda>=10\.1
# No driver is new enough: no container starts with GPUs.
ARG BASE
FROM ${BASE}
ENV NVIDIA_REQUIRE_CUDA=cuda>=99.0
