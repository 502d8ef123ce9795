"""Render Dockerfiles from the matrix, and parse their stages."""
