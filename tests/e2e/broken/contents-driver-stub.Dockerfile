# suite: contents
# base: tf-2.3-gpu-ubuntu
# fails: test_no_driver
# says: /usr/local/lib/libcuda\.so\.1
# A stub where the loader looks first: the driver that a machine mounts is hidden.
ARG BASE
FROM ${BASE}
RUN cp /lib/x86_64-linux-gnu/libm.so.6 /usr/local/lib/libcuda.so.1 && ldconfig
