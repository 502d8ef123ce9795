# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_no_secret$
# says: /root/\.ssh/authorized_keys
ARG BASE
FROM ${BASE}
RUN mkdir -p /root/.ssh && echo 'ssh-ed25519 AAAA nobody' > /root/.ssh/authorized_keys
