# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_nothing_is_writable_by_everybody
# says: /opt/python/lib/python3\.6/site-packages \(777\)
ARG BASE
FROM ${BASE}
RUN chmod 777 /opt/python/lib/python3.6/site-packages
