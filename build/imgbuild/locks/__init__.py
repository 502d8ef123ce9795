"""Lock Python and conda packages, read the locks, and check requirements against them."""
