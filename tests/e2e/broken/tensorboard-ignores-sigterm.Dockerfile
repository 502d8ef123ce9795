# suite: tensorboard
# base: tf-1.12-cpu-debian
# fails: test_tensorboard_stops_on_sigterm
# says: still running 6\d\.\d+ s after SIGTERM
# slow: yes
ARG BASE
FROM ${BASE}
RUN sed -i "1a import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" /opt/python/bin/tensorboard
