# suite: tensorboard
# base: tf-1.10-cpu-debian
# fails: test_tensorboard_gives_the_pinned_version
# says: exit code 1.*tensorboard ended by itself with exit code 1.*No module named 'markdown'
ARG BASE
FROM ${BASE}
RUN rm -r /opt/python/lib/python3.6/site-packages/markdown
