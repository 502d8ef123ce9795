"""How large images are: by layer, by component, what they share, and what they waste."""
