"""Call the engine's API and buildx for all other packages."""
