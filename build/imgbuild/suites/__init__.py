"""Run the testinfra suites against images, and store their results."""
