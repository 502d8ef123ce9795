# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_no_secret_by_another_name
# says: private key: /opt/python/share/node\.txt
ARG BASE
FROM ${BASE}
RUN mkdir -p /opt/python/share \
    && ssh-keygen -q -t rsa -b 2048 -N '' -f /opt/python/share/node.txt
