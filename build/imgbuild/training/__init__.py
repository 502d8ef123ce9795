"""Describe a training job, and write it for each tool that starts containers."""
