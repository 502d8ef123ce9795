# suite: pins
# base: tf-1.10-cpu-debian
# fails: test_requirements_agree
# says: horovod 0\.15\.2 has requirement six>=2
ARG BASE
FROM ${BASE}
RUN echo 'Requires-Dist: six>=2' > /tmp/line \
    && sed -i '/^Name:/r /tmp/line' /opt/python/lib/python3.6/site-packages/horovod-*/METADATA \
    && rm /tmp/line
