"""A folder with every input of an image: what is in it, and how a build takes it from there."""
