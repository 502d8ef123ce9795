"""``imgbuild fetch``: every input of an image in one folder, for machines without a network."""
