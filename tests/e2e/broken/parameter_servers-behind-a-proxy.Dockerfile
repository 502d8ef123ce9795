# suite: parameter_servers
# base: tf-1.12-cpu-debian
# fails: test_task_ends_by_itself\[chief\]
# says: CreateSession still waiting for response from worker: /job:ps
# slow: yes
ARG BASE
FROM ${BASE}
ENV http_proxy=http://127.0.0.1:9
