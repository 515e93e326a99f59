"""Pictures drawn on the device as `suites.inputs.pictures` draws them, and resized as Qwen2-VL's processor does.

A resized grid of colours is a product of three: how much of each row of cells is in each row of pixels, how much of
each column in each column, and the colours. Shapes: R scenes of one shape, F frames, N x M cells, H x W pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from conformance.engines.patches import PatchSettings, resized
from suites.inputs import pictures
from suites.inputs.scenes import Shape

SETTINGS = PatchSettings(
    patch_size=14,
    temporal_patch_size=2,
    merge_size=2,
    min_pixels=56 * 56,
    max_pixels=12845056,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
)
"""What Qwen2-VL's preprocessor configuration says."""

MERGED = SETTINGS.patch_size * SETTINGS.merge_size
"""Side of a merged patch in pixels: what becomes one token."""


@dataclass(frozen=True)
class Size:
    """The size of a picture or video of a shape, before and after it is resized."""

    shape: Shape
    drawn: tuple[int, int]
    read: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Temporal patches, and rows and columns of merged patches."""
        return math.ceil((self.shape.frames or 1) / 2), self.read[0] // MERGED, self.read[1] // MERGED

    @property
    def tokens(self) -> int:
        return math.prod(self.grid)


def some_size(rng: Random, shape: Shape) -> Size:
    """The size of a picture drawn at random in this shape."""
    layout = pictures.grid(rng, shape.rows, shape.columns, shape.sides)
    drawn = sum(layout.heights), sum(layout.widths)
    return Size(shape, drawn, resized(*drawn, SETTINGS))


@dataclass(frozen=True)
class Drawn:
    """`patches` (R, T, patches of a frame, values of a patch) in merge order; `centres` (R, T, 2, tokens of a frame).

    The latter number the cell, among all of the picture or video, in which a merged patch has its centre, in each of
    the two frames of a temporal patch.
    """

    patches: Tensor
    centres: Tensor


def draw(size: Size, cells: Tensor, sides: tuple[int, int]) -> Drawn:
    """Pictures of one size in the colours `cells` (R, F x N x M), indices of `pictures.COLOURS`.

    Cells have sides of their own, at least `sides[0]` pixels, that add up to the picture's.
    """
    rows, columns, device = size.shape.rows, size.shape.columns, cells.device
    frames = cells.reshape(len(cells), -1, rows, columns)
    down, across = (
        _parts(len(cells), count, drawn, sides[0], device)
        for count, drawn in zip((rows, columns), size.drawn, strict=True)
    )
    colours = _constant(tuple(pictures.COLOURS.values()), device)[frames]
    colours = colours + torch.randint(-pictures.SHADE, pictures.SHADE + 1, colours.shape, device=device)
    within_down = _resizing(size.drawn[0], size.read[0], device) @ _within(down, size.drawn[0])
    within_across = _resizing(size.drawn[1], size.read[1], device) @ _within(across, size.drawn[1])
    pixels = torch.einsum("rhn,rfnmc,rwm->rfchw", within_down, colours, within_across)
    loud = pictures.NOISE * torch.rand(len(cells), 1, 1, 1, 1, device=device)
    pixels = (pixels + loud * (2 * torch.rand_like(pixels) - 1)).clamp(0, 255).round() / 255
    mean, std = (_constant(values, device)[:, None, None] for values in (SETTINGS.mean, SETTINGS.std))
    pixels = (pixels - mean) / std
    if pixels.shape[1] % 2:
        pixels = torch.cat((pixels, pixels[:, -1:]), dim=1)
    return Drawn(_patches(pixels), _centres(size, down, across, frames.shape[1]))


@cache
def _constant(values: tuple[object, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device, dtype=torch.float32)


def _parts(rows: int, count: int, total: int, least: int, device: torch.device) -> Tensor:
    """(rows, count) integers of at least `least` that add up to `total`."""
    shares = torch.rand(rows, count, device=device) + 0.05
    ends = (shares / shares.sum(1, keepdim=True)).cumsum(1) * (total - count * least)
    ends = torch.cat((torch.zeros(rows, 1, device=device), ends.round()), dim=1)
    return (ends[:, 1:] - ends[:, :-1] + least).long()


def _within(parts: Tensor, total: int) -> Tensor:
    """(R, total, N): 1 where a pixel is in a part."""
    ends = parts.cumsum(1)[:, None]
    place = torch.arange(total, device=parts.device)[None, :, None]
    return ((place < ends) & (place >= ends - parts[:, None])).float()


@cache
def _resizing(drawn: int, read: int, device: torch.device) -> Tensor:
    """(read, drawn): Pillow's bicubic filter as a matrix, which torch's antialiased one equals."""
    unit = torch.eye(drawn)[None, None]
    matrix = functional.interpolate(unit, (read, drawn), mode="bicubic", antialias=True, align_corners=False)
    return matrix[0, 0].to(device)


def _patches(frames: Tensor) -> Tensor:
    """(R, F, 3, H, W), F even, as (R, F/2, patches, values) in merge order."""
    size, merge = SETTINGS.patch_size, SETTINGS.merge_size
    count, length, _, height, width = frames.shape
    cut = frames.reshape(count, length // 2, 2, 3, height // MERGED, merge, size, width // MERGED, merge, size)
    ordered = cut.permute(0, 1, 4, 7, 5, 8, 3, 2, 6, 9)
    return ordered.reshape(count, length // 2, height * width // size**2, -1)


def _centres(size: Size, down: Tensor, across: Tensor, frames: int) -> Tensor:
    """See `Drawn.centres`."""
    device = down.device

    def cell(parts: Tensor, drawn: int, read: int) -> Tensor:
        places = (torch.arange(read // MERGED, device=device) + 0.5) * MERGED * drawn / read
        return (places[None, :, None] >= parts.cumsum(1)[:, None, :-1]).sum(2)

    row, column = cell(down, size.drawn[0], size.read[0]), cell(across, size.drawn[1], size.read[1])
    places = (row[:, :, None] * size.shape.columns + column[:, None, :]).flatten(1)
    frame = torch.arange(size.grid[0] * 2, device=device).clamp(max=frames - 1)
    numbers = frame[None, :, None] * size.shape.rows * size.shape.columns + places[:, None]
    return numbers.reshape(len(down), size.grid[0], 2, -1)
