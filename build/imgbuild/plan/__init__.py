"""What is missing: inputs made ready, their digest, and what a build would have to do."""
