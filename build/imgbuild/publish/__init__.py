"""Publish images: which may be pushed, how, and what a repository has."""
