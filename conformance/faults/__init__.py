"""Faults that the suite injects on the engine's side to show that it finds them."""
