"""Publishing: what may be pushed, how it is pushed, and what is in a repository."""
