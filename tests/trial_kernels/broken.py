"""A module that cannot be imported."""

from __future__ import annotations


def compile_kernel() -> None:
    raise RuntimeError("nvcc not found")


compile_kernel()
