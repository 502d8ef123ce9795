"""What a build stands on and does not download itself: base image, interpreter, ``uv``."""
