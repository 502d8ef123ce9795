# suite: running
# base: tf-1.12-cpu-debian
# fails: test_text_is_utf_8
# says: 'ascii' codec can't encode character
# slow: yes
ARG BASE
FROM ${BASE}
ENV LANG=C
