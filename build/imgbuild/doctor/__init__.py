"""What this machine has, what it lacks, and the commands that mend it."""
