"""Compare the pins of the matrix with the artifacts themselves; nothing of them is run."""
