"""The edge to Docker: the engine's API, buildx, and what a build shows while it runs."""
