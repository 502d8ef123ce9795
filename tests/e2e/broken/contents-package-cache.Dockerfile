# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_no_package_cache
# says: /root/\.cache/pip/http/page
ARG BASE
FROM ${BASE}
RUN mkdir -p /root/.cache/pip/http && echo page > /root/.cache/pip/http/page
