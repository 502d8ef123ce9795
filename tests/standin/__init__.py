"""Stand-in upstreams, for tests only: what is real in them and what is not, README.md says."""
