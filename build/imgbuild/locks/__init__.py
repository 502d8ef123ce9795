"""Locks of Python and conda packages, and the requirements that they are made from."""
