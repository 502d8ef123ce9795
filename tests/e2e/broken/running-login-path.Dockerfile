# suite: running
# base: tf-1.15-cpu-debian
# fails: test_shell_finds_the_programs\[login shell
# says: a login shell.* does not find horovodrun, tensorboard
# slow: yes
ARG BASE
FROM ${BASE}
RUN rm /etc/profile.d/imgbuild.sh
