"""Bring an old repository to a running program in an image."""
