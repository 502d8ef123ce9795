"""Audit pins, add versions, list CI jobs, clean up and reproduce images."""
