# suite: onnx
# base: tf-1.12-cpu-debian
# fails: test_export_is_made_with_the_images_own_packages
# says: 1\.16\.4.*1\.16\.6
# slow: yes
ARG BASE
FROM ${BASE}
RUN sed -i 's/1\.16\.6/1.16.4/' /opt/python/lib/python3.6/site-packages/numpy/version.py
