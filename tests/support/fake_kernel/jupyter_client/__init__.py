"""Stands in for jupyter_client."""
