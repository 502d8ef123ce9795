"""``matrix.yaml``: the model of the file, its validation, and the images it describes."""
