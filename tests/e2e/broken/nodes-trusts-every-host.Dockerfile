# suite: nodes
# base: tf-1.12-cpu-debian
# fails: test_ssh_of_users_trusts_no_host
# says: stricthostkeychecking
# slow: yes
ARG BASE
FROM ${BASE}
RUN printf 'Host *\n    StrictHostKeyChecking no\n' > /etc/ssh/ssh_config
