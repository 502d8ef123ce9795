"""Decide what to build: the input digest of each image, and what changed."""
