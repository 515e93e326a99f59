"""Qwen2-VL's vision tower for many pictures of one size at once; the same figures as transformers' own, faster.

transformers calls attention once for each picture; here one call takes all of a size. A test compares the two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def merged(visual: nn.Module, groups: list[tuple[Tensor, tuple[int, int]]]) -> list[Tensor]:
    """The tower's output for groups of `patches` (S, rows x columns, values) with their (rows, columns) of patches.

    Each comes out as (S, rows x columns / 4, text width); S pictures, or temporal patches of videos, see only
    themselves.
    """
    embed = visual.patch_embed.proj.weight
    values = torch.cat([patches.flatten(0, 1) for patches, _ in groups])
    states = functional.linear(values.to(embed.dtype), embed.flatten(1))
    shapes = [patches.shape[:2] for patches, _ in groups]
    waves = [_waves(visual, grid, values.device) for _, grid in groups]
    for block in visual.blocks:
        states = states + _attention(block.attn, block.norm1(states), shapes, waves)
        states = states + block.mlp(block.norm2(states))
    out = visual.merger(states)
    parts = out.split([count * length // 4 for count, length in shapes])
    return [part.reshape(count, length // 4, -1) for part, (count, length) in zip(parts, shapes, strict=True)]


def _waves(visual: nn.Module, grid: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine (patches, 1, head size) of each patch's row and column, in merge order."""
    size = visual.blocks[0].attn.qkv.in_features // visual.blocks[0].attn.num_heads
    row, column = torch.meshgrid(*(torch.arange(length, device=device) for length in grid), indexing="ij")
    frequencies = 10000.0 ** (-torch.arange(0, size // 2, 2, device=device) / (size // 2))
    angles = torch.cat([_merge_order(axis)[:, None] * frequencies for axis in (row, column)], dim=1)
    angles = torch.cat((angles, angles), dim=1)[:, None]
    return angles.cos(), angles.sin()


def _merge_order(grid: Tensor) -> Tensor:
    rows, columns = grid.shape
    return grid.reshape(rows // 2, 2, columns // 2, 2).transpose(1, 2).flatten()


def _attention(
    module: nn.Module, states: Tensor, shapes: list[tuple[int, int]], waves: list[tuple[Tensor, Tensor]]
) -> Tensor:
    projected = module.qkv(states).reshape(len(states), 3, module.num_heads, -1)
    found = []
    for part, (count, length), (cos, sin) in zip(
        projected.split([count * length for count, length in shapes]), shapes, waves, strict=True
    ):
        query, key, value = part.reshape(count, length, 3, module.num_heads, -1).unbind(2)
        query, key = (_turned(each, cos, sin).to(value.dtype) for each in (query, key))
        seen = functional.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (query, key, value)))
        found.append(seen.transpose(1, 2).reshape(count * length, -1))
    return module.proj(torch.cat(found))


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    states = states.float()
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-second, first), dim=-1) * sin
