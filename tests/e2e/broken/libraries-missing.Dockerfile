# suite: libraries
# base: tf-1.10-cpu-debian
# fails: test_every_library_is_found
# says: _sqlite3\.\S+ needs libsqlite3\.so\.0: not in the image
ARG BASE
FROM ${BASE}
RUN rm /usr/lib/x86_64-linux-gnu/libsqlite3.so.0*
