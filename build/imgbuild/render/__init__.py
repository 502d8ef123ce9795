"""Dockerfiles: rendered from the matrix, committed, never edited by hand."""
