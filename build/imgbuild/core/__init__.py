"""Modules that know nothing of images: errors, files, processes, YAML, settings."""
