"""The full-size models: what they need of a machine, where they lie, how they get there and how they travel."""
