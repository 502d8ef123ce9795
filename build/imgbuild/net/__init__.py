"""HTTP, mirrors, registries, logins and signatures."""
