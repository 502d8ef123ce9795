# suite: frameworks
# base: tf-1.10-cpu-debian
# fails: test_function_that_imports_inside_arrives
# says: Can't get attribute 'imports_inside'
ARG BASE
FROM ${BASE}
RUN echo 'from pickle import *' > /opt/python/lib/python3.6/site-packages/cloudpickle/__init__.py
