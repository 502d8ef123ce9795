"""Decide what to build, from the input digest of each image and its changes."""
