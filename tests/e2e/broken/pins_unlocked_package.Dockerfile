# suite: pins
# base: tf-1.10-cpu-debian
# fails: test_nothing_beyond_the_lock_is_installed
# says: in the image but not in the lock: six-again==1\.0
# A package came along that nobody locked.
ARG BASE
FROM ${BASE}
RUN cd /opt/python/lib/python3.6/site-packages && mkdir six_again-1.0.dist-info \
    && printf 'Metadata-Version: 2.1\nName: six-again\nVersion: 1.0\n' > six_again-1.0.dist-info/METADATA
