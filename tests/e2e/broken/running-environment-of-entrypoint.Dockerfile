# suite: running
# base: tf-1.12-cpu-debian
# fails: test_environment_is_the_same\[docker run
# says: docker exec MPI_SETTING=None; docker run MPI_SETTING=on
# slow: yes
ARG BASE
FROM ${BASE}
RUN printf '#!/bin/sh\nexport MPI_SETTING=on\nexec "$@"\n' > /usr/local/bin/start && chmod +x /usr/local/bin/start
ENTRYPOINT ["/opt/python/bin/dumb-init", "--", "/usr/local/bin/start"]
