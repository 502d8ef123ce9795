"""Run the testinfra suites in images, and store their results."""
