# suite: pins
# base: tf-1.10-cpu-debian
# fails: test_pin_labels_say_what_is_inside
# says: imgbuild\.pin\.mpi=4\.1\.8, but the image has 4\.1\.4
ARG BASE
FROM ${BASE}
LABEL imgbuild.pin.mpi="4.1.8"
