# suite: contents
# base: tf-1.15-cpu-debian
# fails: test_no_history
# says: /root/\.bash_history\n/root/\.python_history
ARG BASE
FROM ${BASE}
RUN echo 'curl -u robot:hunter2 mirror' > /root/.bash_history && echo 'exit()' > /root/.python_history
