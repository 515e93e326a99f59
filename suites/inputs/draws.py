"""Inputs that are several draws of one kind, one after another: what a suite asks where more prompts have to decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

Inputs = TypeVar("Inputs")
Item = TypeVar("Item")


def draws(draw: Callable[[int], Inputs], seed: int, count: int) -> list[Inputs]:
    """`count` draws that no other seed has."""
    return [draw(seed * count + number) for number in range(count)]


def chained(parts: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
    """All items, in order."""
    return tuple(chain.from_iterable(parts))


def shifted(parts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Group numbers from 0 in every part, as group numbers of the whole."""
    found: list[int] = []
    for part in parts:
        start = max(found, default=-1) + 1
        found += [start + group for group in part]
    return tuple(found)
