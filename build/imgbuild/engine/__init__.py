"""The only way to Docker: the engine's API and buildx."""
