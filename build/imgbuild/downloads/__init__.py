"""Files from the network: asked from a mirror or their upstream, trusted by their sha256 alone."""
