"""Deterministic inputs of the suites, with the right answers known by construction; pure Python, no model needed."""
