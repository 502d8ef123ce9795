"""Build images: from the plan to tested, tagged images."""
