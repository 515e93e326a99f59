"""Intel GPUs through torch.xpu: the claims are in profile.toml."""
