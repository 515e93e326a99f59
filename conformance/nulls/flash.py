"""An emulated flash kernel: tiles of keys with an online softmax, split and merged in any legal way."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from conformance.engines.chosen_kernels import registered

if TYPE_CHECKING:
    from conformance.nulls.runner import NullRunner

Partial = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""What a part of the keys comes to: greatest score, sum of exponentials [b, h, q, 1], weighted values [b, h, q, d]."""

_EXP2 = (0.077119089663028717041015625, 0.227564394474029541015625, 0.695146143436431884765625, 1.0)
"""2^f for f in 0 to 1, highest power first, relative error 8.8e-5: the minimax polynomial of FlashAttention 4."""
_LEAST = -87.0  # exp of less is no normal float32


@dataclass(frozen=True)
class Kernel:
    """How one kernel computes; scores and sums are float32 in all."""

    tile: int = 64
    splits: int = 1
    order: Literal["forward", "reversed", "pairwise"] = "forward"
    exponential: Literal["exact", "polynomial"] = "exact"
    probabilities: Literal["served", "float16", "float32"] = "served"
    rounded_scores: bool = False


def install(runner: NullRunner, kernel: Kernel) -> None:
    """Have the runner's model, its vision tower included, attend by the emulated kernel.

    What it stands in for is called once beside it on a single key, so that the evidence is the target's own and only
    the numbers are judged.
    """
    request = runner.request
    for name in {registered(each) for each in (request.attention, request.vision_attention) if each}:
        # In this one mapping only: what is registered for all stays, and comes to light again.
        ALL_ATTENTION_FUNCTIONS[name] = _standing_in(ALL_ATTENTION_FUNCTIONS.get(name), kernel)
        runner.undo(functools.partial(ALL_ATTENTION_FUNCTIONS.__delitem__, name))


def _standing_in(original: Any, kernel: Kernel) -> Any:
    def forward(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        is_causal: bool | None = None,
        softcap: float | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        _leave_evidence(original, module, query, key, value)
        mask = attention_mask
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        if original is not None and mask is None and causal and query.shape[2] > 1:
            # As SDPA has it: query i sees keys 0 to i. Eager attention has no causality but its mask's.
            places = torch.arange(max(query.shape[2], key.shape[2]), device=query.device)
            mask = (places[: query.shape[2], None] >= places[None, : key.shape[2]])[None, None]
        found = attend(query, key, value, mask, scale=scaling, softcap=softcap, kernel=kernel)
        return found.transpose(1, 2).contiguous(), None

    return forward


def _leave_evidence(
    original: Any, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> None:
    if original is None:  # eager attention, which is no function of the interface, dispatches a softmax
        torch.softmax(query.new_zeros(1, 1), dim=-1)
    else:
        original(module, query[:1, :, :1], key[:1, :, :1], value[:1, :, :1], None, is_causal=False)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    kernel: Kernel,
) -> torch.Tensor:
    """Attention of query [b, h, q, d] over key and value [b, kv heads, k, d], in the query's dtype [b, h, q, d].

    `mask` is bool, True where a key is seen, or added to the scores; [b or 1, h or 1, q, at least k], or None. A query
    that sees no key gets zeros. `scale` is 1 / sqrt(d) where None; `softcap` as in `AttentionCall`.
    """
    groups, count = query.shape[1] // key.shape[1], key.shape[2]
    key, value = (each.float().repeat_interleave(groups, 1) for each in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    wide = query.float()

    def part(start: int, end: int) -> Partial:
        scores = wide @ key[:, :, start:end].transpose(2, 3) * scale
        if kernel.rounded_scores:
            scores = scores.to(query.dtype).float()
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if mask is not None:
            seen = mask[..., start:end]
            scores = scores.masked_fill(~seen, -math.inf) if seen.dtype == torch.bool else scores + seen.float()
        greatest = scores.amax(dim=-1, keepdim=True)
        weights = _exp(scores - _finite(greatest), kernel)
        rounded = {"served": query.dtype, "float16": torch.float16, "float32": torch.float32}[kernel.probabilities]
        return greatest, weights.sum(-1, keepdim=True), weights.to(rounded).float() @ value[:, :, start:end]

    tiles = [(start, min(start + kernel.tile, count)) for start in range(0, count, kernel.tile)]
    if kernel.order == "pairwise":
        found = _tree([part(*tile) for tile in tiles], kernel)
    else:
        if kernel.order == "reversed":
            tiles.reverse()
        size = math.ceil(len(tiles) / kernel.splits)
        splits = [tiles[at : at + size] for at in range(0, len(tiles), size)]
        found = _chain([_chain([part(*tile) for tile in split], kernel) for split in splits], kernel)
    _, total, weighted = found
    return torch.where(total > 0, weighted / total, 0.0).to(query.dtype)


def _chain(parts: Sequence[Partial], kernel: Kernel) -> Partial:
    whole = parts[0]
    for each in parts[1:]:
        whole = _merged(whole, each, kernel)
    return whole


def _tree(parts: list[Partial], kernel: Kernel) -> Partial:
    while len(parts) > 1:
        pairs = [_merged(parts[at], parts[at + 1], kernel) for at in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def _merged(first: Partial, second: Partial, kernel: Kernel) -> Partial:
    greatest = torch.maximum(first[0], second[0])
    one, other = (_exp(each[0] - _finite(greatest), kernel) for each in (first, second))
    return greatest, first[1] * one + second[1] * other, first[2] * one + second[2] * other


def _finite(greatest: torch.Tensor) -> torch.Tensor:
    """Zero where no key is seen, so that minus infinity less itself does not make NaN."""
    return torch.where(greatest == -math.inf, 0.0, greatest)


def _exp(values: torch.Tensor, kernel: Kernel) -> torch.Tensor:
    return torch.exp(values) if kernel.exponential == "exact" else polynomial_exp(values)


def polynomial_exp(values: torch.Tensor) -> torch.Tensor:
    """exp of float32 values of at most 0, with a relative error of up to 1e-4; exactly 0 far below."""
    powers = values.clamp(min=_LEAST) * math.log2(math.e)
    whole = powers.floor()
    rest, found = powers - whole, torch.zeros_like(powers)
    for coefficient in _EXP2:
        found = found * rest + coefficient
    return torch.where(values < _LEAST, 0.0, torch.ldexp(found, whole))
