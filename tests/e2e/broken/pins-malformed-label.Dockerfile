# suite: pins
# base: tf-1.10-cpu-debian
# fails: test_labels_have_their_forms
# says: input-digest: 'sha256:0'.*image\.created: 'yesterday'.*title: tensorflow, but imgbuild\.name: tf-1\.10-cpu-debian
ARG BASE
FROM ${BASE}
LABEL imgbuild.input-digest="sha256:0" \
      org.opencontainers.image.created="yesterday" \
      org.opencontainers.image.title="tensorflow"
