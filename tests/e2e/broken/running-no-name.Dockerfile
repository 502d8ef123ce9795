# suite: running
# base: tf-2.2-cpu-debian
# fails: test_user_without_a_name_gets_one
# says: .
# slow: yes
ARG BASE
FROM ${BASE}
RUN sed -i '/USER/d; /LOGNAME/d' /usr/local/bin/as-user
