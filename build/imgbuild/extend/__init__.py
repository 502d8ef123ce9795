"""Add packages, files and settings to an image, by a lock that fits what is in it."""
