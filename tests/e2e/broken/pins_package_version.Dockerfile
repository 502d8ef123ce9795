# suite: pins
# base: tf-1.10-cpu-debian
# fails: test_locked_packages_are_installed
# says: protobuf: locked 3\.19\.6, the image has 3\.18\.0
# Somebody let pip choose another version.
ARG BASE
FROM ${BASE}
RUN cd /opt/python/lib/python3.6/site-packages \
    && sed -i 's/^Version: .*/Version: 3.18.0/' protobuf-*.dist-info/METADATA
