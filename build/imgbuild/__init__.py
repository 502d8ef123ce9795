"""imgbuild: build, test and publish container images with an old TensorFlow."""
