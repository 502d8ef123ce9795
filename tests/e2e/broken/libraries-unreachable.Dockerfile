# suite: libraries
# base: tf-2.2-cpu-debian
# fails: test_every_library_is_found
# says: libhwloc\.so\.15: not where the loader looks, but /opt/lost/libhwloc\.so\.15
ARG BASE
FROM ${BASE}
RUN mkdir /opt/lost \
    && mv "$(readlink -f /usr/lib/x86_64-linux-gnu/libhwloc.so.15)" /opt/lost/libhwloc.so.15 \
    && rm -f /usr/lib/x86_64-linux-gnu/libhwloc.so.15 && ldconfig
