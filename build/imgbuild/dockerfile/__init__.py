"""Dockerfiles, rendered from the matrix as a list of stages."""
