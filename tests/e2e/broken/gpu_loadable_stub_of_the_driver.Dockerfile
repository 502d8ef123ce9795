# suite: gpu_loadable
# base: tf-2.12-gpu-debian
# fails: test_no_folder_of_stubs_is_searched
# says: the loader searches .*/usr/local/cuda-11\.8/lib64/stubs
# slow: yes
# A folder of stubs is searched before the driver's: no GPU is ever seen.
ARG BASE
FROM ${BASE}
RUN mkdir -p /usr/local/cuda-11.8/lib64/stubs \
    && echo /usr/local/cuda-11.8/lib64/stubs > /etc/ld.so.conf.d/000-stubs.conf && ldconfig
