# suite: tensorboard
# base: tf-1.10-cpu-debian
# fails: test_tensorboard_leaves_no_process
# says: left behind: \['\d+ sleep 300'
ARG BASE
FROM ${BASE}
RUN mv /opt/python/bin/tensorboard /opt/python/bin/tensorboard-itself && \
    printf '#!/bin/sh\nsleep 300 &\nexec tensorboard-itself "$@"\n' >/opt/python/bin/tensorboard && \
    chmod 755 /opt/python/bin/tensorboard
