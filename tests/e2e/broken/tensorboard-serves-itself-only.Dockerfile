# suite: tensorboard
# base: tf-1.10-cpu-debian
# fails: test_another_container_is_served
# says: Connection refused
ARG BASE
FROM ${BASE}
RUN mv /opt/python/bin/tensorboard /opt/python/bin/tensorboard-itself && \
    printf '#!/bin/sh\nexec tensorboard-itself "$@" --host 127.0.0.1\n' \
    >/opt/python/bin/tensorboard && \
    chmod 755 /opt/python/bin/tensorboard
