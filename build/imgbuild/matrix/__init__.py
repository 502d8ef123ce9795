"""The model of ``matrix.yaml``, its validation, and the images that the file describes."""
