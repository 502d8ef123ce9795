# suite: pins
# base: tf-2.2-cpu-debian
# fails: test_constraints_fit_what_is_installed
# says: numpy: the image has 1\.18\.5, /opt/python/constraints\.txt ==1\.99\.0
# The file is not of this image.
ARG BASE
FROM ${BASE}
RUN sed -i 's/^numpy==.*/numpy==1.99.0/' /opt/python/constraints.txt
