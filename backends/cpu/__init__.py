"""CPUs through torch: the claims are in profile.toml."""
