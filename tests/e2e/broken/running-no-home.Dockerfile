# suite: running
# base: tf-2.2-cpu-debian
# fails: test_a_user_without_a_name_installs_packages
# says: .
# slow: yes
# As it was: env alone, so that HOME is / for a user without a name.
ARG BASE
FROM ${BASE}
RUN printf '%s\n' '#!/bin/sh' 'exec /usr/bin/env -- "$@"' > /usr/local/bin/as-user
