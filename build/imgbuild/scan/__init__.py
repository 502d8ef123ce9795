"""Scan images for missing security fixes, known vulnerabilities and unsupported parts."""
