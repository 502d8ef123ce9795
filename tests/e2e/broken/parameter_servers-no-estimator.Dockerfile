# suite: parameter_servers
# base: tf-1.15-cpu-debian
# fails: test_task_ends_by_itself\[chief\]
# says: no attribute 'estimator'
# slow: yes
ARG BASE
FROM ${BASE}
RUN rm -r /opt/python/lib/python3.6/site-packages/tensorflow_estimator
