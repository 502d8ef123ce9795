"""Check what this machine has, what it lacks, and which command fixes it. Changes nothing."""
