"""Modules that do not depend on images: errors, files, processes, YAML, settings."""
