"""Check this machine without changing it, and name the command that fixes each fault."""
