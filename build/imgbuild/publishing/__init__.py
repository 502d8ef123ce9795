"""Publishing: the tags of an image, what has to be so before it is pushed, and what was pushed."""
