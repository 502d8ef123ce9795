# suite: tensorboard
# base: tf-1.12-cpu-debian
# fails: test_events_appear_while_tensorboard_runs
# says: TensorBoard does not show all that was written
# slow: yes
ARG BASE
FROM ${BASE}
RUN mv /opt/python/bin/tensorboard /opt/python/bin/tensorboard-itself && \
    printf '#!/bin/sh\nexec tensorboard-itself "$@" --reload_interval 3600\n' \
    >/opt/python/bin/tensorboard && \
    chmod 755 /opt/python/bin/tensorboard
