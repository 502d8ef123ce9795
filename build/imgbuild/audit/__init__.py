"""Compare the pins of the matrix with the artifacts; none of them is run."""
