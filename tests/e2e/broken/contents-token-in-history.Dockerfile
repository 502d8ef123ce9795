# suite: contents
# base: tf-1.10-cpu-debian
# fails: test_no_secret_in_the_configuration
# says: environment: API_TOKEN.*history: MIRROR_PASSWORD
ARG BASE
FROM ${BASE}
ARG MIRROR_PASSWORD=hunter2
RUN test -n "$MIRROR_PASSWORD"
ENV API_TOKEN=hunter2
