# suite: gpu_loadable
# base: tf-2.12-gpu-debian
# fails: test_the_check_at_start_is_silent_on_gpus_that_fit
# says: no code for it
# slow: yes
# The check at start takes machine code for none.
ARG BASE
FROM ${BASE}
RUN cd /usr/local/lib/imgbuild && sed -i 's/return NATIVE/return NOTHING/' gpu_start.py && rm -r __pycache__
