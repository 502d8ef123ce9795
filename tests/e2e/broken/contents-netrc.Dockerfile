# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_no_secret_by_another_name
# says: login in an address: /etc/pip\.conf.*netrc: /etc/mirror-login
ARG BASE
FROM ${BASE}
RUN echo 'machine mirror.example login robot password hunter2' > /etc/mirror-login \
    && printf '[global]\nindex-url = https://robot:hunter2@mirror.example/simple\n' > /etc/pip.conf
