"""Dockerfiles, rendered from the matrix, and the locks of packages that they install."""
