"""GitHub's workflows on this machine: read strictly, held to this project's rules, executed."""
