"""imgbuild: build, test and publish container images for TensorFlow 1.10 to 2.15."""
