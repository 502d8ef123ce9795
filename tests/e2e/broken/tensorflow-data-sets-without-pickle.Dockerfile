# suite: tensorflow
# base: tf-1.15-cpu-debian
# fails: test_data_sets_of_object_arrays_load
# says: Object arrays cannot be loaded when allow_pickle=False
ARG BASE
FROM ${BASE}
# As Keras was written before NumPy 1.16.3.
RUN sed -i 's/, allow_pickle=True//' /opt/python/lib/python3.6/site-packages/tensorflow_core/python/keras/datasets/imdb.py
