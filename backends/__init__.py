"""The backends that ship with the suite: one folder per platform, its claims in profile.toml."""
