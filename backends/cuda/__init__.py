"""NVIDIA GPUs through torch.cuda: the claims are in profile.toml."""
