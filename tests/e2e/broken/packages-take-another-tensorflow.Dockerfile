# suite: packages
# base: tf-2.2-cpu-debian
# fails: test_tensorflow_stays\[tensorflow
# says: .
# slow: yes
# As it was: nothing says that tensorflow-cpu is TensorFlow.
ARG BASE
FROM ${BASE}
RUN rm -r /opt/python/lib/python3.6/site-packages/tensorflow-2.2.3+imgbuild.dist-info \
    && sed -i '/^tensorflow==/d' /opt/python/constraints.txt
