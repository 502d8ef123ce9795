"""List the images that changed or are not published, as jobs of a CI system."""
