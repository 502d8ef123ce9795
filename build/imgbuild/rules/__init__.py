"""Compatibility rules: data of the matrix, judged here by code that knows no component."""
