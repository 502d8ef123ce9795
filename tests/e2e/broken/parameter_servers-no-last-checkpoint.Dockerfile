# suite: parameter_servers
# base: tf-1.10-cpu-debian
# fails: test_estimator_ends_with_all_steps_in_its_checkpoint
# says: model\.ckpt-0.*model\.ckpt-100
ARG BASE
FROM ${BASE}
RUN cd /opt/python/lib/python3.6/site-packages/tensorflow/python/training \
    && sed -i 's/if last_step != self._timer.last_triggered_step():/if False:/' basic_session_run_hooks.py
