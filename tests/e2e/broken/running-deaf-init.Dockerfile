# suite: running
# base: tf-1.12-cpu-debian
# fails: test_docker_stop_reaches_it\[sleep
# says: docker stop of sleep: killed after 30 s
# slow: yes
ARG BASE
FROM ${BASE}
RUN printf '#!/bin/bash\ntrap "" TERM\n"${@:2}" &\nwait\n' > /usr/local/bin/start && chmod +x /usr/local/bin/start
RUN ln -sf /usr/local/bin/start /opt/python/bin/dumb-init
