"""Hashed locks: every Python package of an image, by exact version and sha256."""
