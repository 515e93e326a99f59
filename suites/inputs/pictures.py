"""Pictures that can be read out: grids of cells, each in a colour that has a name of one token.

Cells have sides of their own, so that their edges fall anywhere within a vision model's patches, and pictures have odd
sides, so that they are resized. Shades and noise are drawn with `random.Random` and integers: the pixels are the same
on every machine and with every version of numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

COLOURS: dict[str, tuple[int, int, int]] = {
    "azure": (50, 190, 245),
    "black": (18, 18, 18),
    "blue": (30, 50, 215),
    "brown": (110, 65, 25),
    "green": (20, 130, 45),
    "grey": (128, 128, 128),
    "lime": (150, 235, 50),
    "olive": (120, 125, 20),
    "orange": (245, 130, 20),
    "pink": (250, 150, 195),
    "purple": (130, 30, 160),
    "red": (215, 30, 30),
    "white": (238, 238, 238),
    "yellow": (245, 225, 40),
}
"""Red, green and blue, 0 to 255."""

SHADE, NOISE = 8, 8
"""How far a cell's colour, and a pixel's, may be off in each channel."""

SIDES = (30, 48)
"""Least and greatest side of a cell in pixels: a patch of 14 pixels lies within it, wherever its edges are."""

Cells = tuple[str, ...]
"""The colours of a grid, row by row."""


@dataclass(frozen=True)
class Grid:
    """`heights` of the rows and `widths` of the columns, in pixels."""

    heights: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def cells(self) -> int:
        return len(self.heights) * len(self.widths)


def grid(rng: Random, rows: int, columns: int, sides: tuple[int, int] = SIDES) -> Grid:
    """A grid whose height and width are odd."""
    return Grid(_parts(rng, rows, sides), _parts(rng, columns, sides))


def _parts(rng: Random, count: int, sides: tuple[int, int]) -> tuple[int, ...]:
    while True:
        parts = tuple(rng.randint(*sides) for _ in range(count))
        if sum(parts) % 2:
            return parts


def draw(rng: Random, shape: Grid, cells: Cells) -> Any:
    """The grid in these colours: uint8 [height, width, 3], read-only."""
    import numpy as np

    shades = [[channel + rng.randint(-SHADE, SHADE) for channel in COLOURS[name]] for name in cells]
    colours = np.array(shades, dtype=np.int16).reshape(len(shape.heights), len(shape.widths), 3)
    pixels = colours.repeat(shape.heights, axis=0).repeat(shape.widths, axis=1)
    noise = np.frombuffer(rng.randbytes(pixels.size), dtype=np.uint8).reshape(pixels.shape)
    pixels = np.clip(pixels + (noise % (2 * NOISE + 1)).astype(np.int16) - NOISE, 0, 255).astype(np.uint8)
    pixels.setflags(write=False)
    return pixels


def round_trip(rng: Random, count: int) -> Cells:
    """`count` colours of which, read round and round, no two neighbours are the same and no two occur again.

    So a colour is determined by the two before it, whether they are read from a picture or from the text so far.
    """
    names = tuple(COLOURS)
    while True:
        trip = [rng.choice(names)]
        seen: set[tuple[str, str]] = set()
        while len(trip) < count:
            onward = [name for name in names if name != trip[-1] and (trip[-1], name) not in seen]
            if not onward:
                break
            trip.append(rng.choice(onward))
            seen.add((trip[-2], trip[-1]))
        if len(trip) == count and is_round_trip(tuple(trip)):
            return tuple(trip)


def is_round_trip(cells: Cells) -> bool:
    """Whether no two neighbours, the last and the first included, are the same or occur again."""
    neighbours = list(zip(cells, cells[1:] + cells[:1], strict=True))
    return len(set(neighbours)) == len(cells) and all(one != other for one, other in neighbours)
