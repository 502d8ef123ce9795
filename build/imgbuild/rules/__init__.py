"""Compatibility rules: data of the matrix, judged when it is loaded by code that knows no names."""
