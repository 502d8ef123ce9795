"""Add packages, files and settings to an image, with a lock that fits its packages."""
