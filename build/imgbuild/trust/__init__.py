"""What can be trusted of an image: its contents, its makers, and what is wrong with it."""
