"""imgbuild: builds, tests and publishes images with TensorFlow 1.10 to 2.3, every pin proved."""

__version__ = "0.1.0"
