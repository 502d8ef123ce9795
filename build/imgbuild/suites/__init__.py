"""Running the testinfra suites inside an image, and what they found."""
