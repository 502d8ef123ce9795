"""Training jobs: one model, and how each tool that starts containers takes it."""
