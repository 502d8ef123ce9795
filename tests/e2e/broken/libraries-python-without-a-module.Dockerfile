# suite: libraries
# base: tf-1.10-cpu-debian
# fails: test_the_standard_library_is_whole
# says: No module named '_sqlite3'
ARG BASE
FROM ${BASE}
RUN rm /opt/python/lib/python3.6/lib-dynload/_sqlite3.*
