"""Publish images, and verify, list, retire and delete published images."""
