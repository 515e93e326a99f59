"""Qwen2-VL's vision tower for many pictures of one size at once; the same figures as transformers' own, faster.

transformers calls attention once for each picture; here one call takes all of a size. A test compares the two.
"""

from __future__ import annotations

from functools import cache

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
    shapes = [(patches.shape[0], patches.shape[1]) for patches, _ in groups]
    size = visual.blocks[0].attn.qkv.in_features // visual.blocks[0].attn.num_heads
    waves = torch.cat(
        [
            _waves(grid, size, values.device).repeat(count, 1, 1, 1)
            for (count, _), (_, grid) in zip(shapes, groups, strict=True)
        ]
    )
    for block in visual.blocks:
        states = states + _attention(block.attn, block.norm1(states), shapes, waves)
        states = states + block.mlp(block.norm2(states))
    out = visual.merger(states)
    parts = out.split([count * length // 4 for count, length in shapes])
    return [part.reshape(count, length // 4, -1) for part, (count, length) in zip(parts, shapes, strict=True)]


@cache
def _waves(grid: tuple[int, int], size: int, device: torch.device) -> Tensor:
    """Cosine and sine (patches, 2, 1, head size) of each patch's row and column, in merge order."""
    row, column = torch.meshgrid(*(torch.arange(length, device=device) for length in grid), indexing="ij")
    frequencies = 10000.0 ** (-torch.arange(0, size // 2, 2, device=device) / (size // 2))
    angles = torch.cat([_merge_order(axis)[:, None] * frequencies for axis in (row, column)], dim=1)
    angles = torch.cat((angles, angles), dim=1)[:, None]
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def _merge_order(grid: Tensor) -> Tensor:
    rows, columns = grid.shape
    return grid.reshape(rows // 2, 2, columns // 2, 2).transpose(1, 2).flatten()


def _attention(module: nn.Module, states: Tensor, shapes: list[tuple[int, int]], waves: Tensor) -> Tensor:
    query, key, value = module.qkv(states).reshape(len(states), 3, module.num_heads, -1).unbind(1)
    query, key = (_turned(each, *waves.unbind(1)).to(value.dtype) for each in (query, key))
    sizes = [count * length for count, length in shapes]
    seen = [
        functional.scaled_dot_product_attention(
            *(each.reshape(*shape, module.num_heads, -1).transpose(1, 2) for each in part)
        )
        for *part, shape in zip(query.split(sizes), key.split(sizes), value.split(sizes), shapes, strict=True)
    ]
    return module.proj(torch.cat([each.transpose(1, 2).flatten(0, 1).flatten(1) for each in seen]))


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    states = states.float()
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-second, first), dim=-1) * sin
