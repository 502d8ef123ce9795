"""``imgbuild clean``: what imgbuild made and nobody needs, shown, and removed when asked."""
