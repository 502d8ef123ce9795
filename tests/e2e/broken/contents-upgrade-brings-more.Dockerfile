# suite: contents
# base: tf-2.2-cpu-debian
# fails: test_an_upgrade_installs_nothing_new
# says: imgbuild-new-package
# The stand-in below the archive's release: an upgrade replaces it.
ARG BASE
FROM ${BASE}
RUN sed -i 's/^Version: 2.9.0-1+imgbuild$/Version: 2.9.0-1~imgbuild/' /var/lib/dpkg/status
