"""A page to choose an image from: what matrix, locks, suites and registry know, side by side."""
