"""Build, test and tag the images of a plan."""
