"""Commands for maintainers of a family: audit, add, CI jobs, clean, reproduce."""
