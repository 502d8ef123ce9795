"""Connect to upstreams, mirrors and registries; sign and verify images."""
