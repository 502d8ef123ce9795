"""Check this machine, and name the command that fixes each fault. Changes nothing."""
