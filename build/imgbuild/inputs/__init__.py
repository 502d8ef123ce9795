"""Get the inputs of builds: downloads, base images, the interpreter, ``uv``."""
