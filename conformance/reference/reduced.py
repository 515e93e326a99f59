"""Products that are reduced by claim: TF32, and attention whose sums are kept in float16.

They are yardsticks: how wrong a device is that does what its profile says, and nothing worse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

TF32, FP16_ACC = "conformance_tf32", "conformance_fp16_acc"

MATMUL, CONVOLUTION = "matmul", "convolution"

STEP = 16
"""Products that a matrix unit adds up before it rounds its sum to float16: the depth of one instruction."""

_PRODUCTS: dict[str, set[Callable[..., Any]]] = {
    MATMUL: {torch.nn.functional.linear},
    CONVOLUTION: {torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d},
}


def round_to_tf32(values: torch.Tensor) -> torch.Tensor:
    """Float32 rounded to 10 bits of mantissa, to nearest, ties away from zero, as matrix units take their factors."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class Tf32Products(TorchFunctionMode):
    """While active, linear layers and convolutions, as far as `kinds` names them, round their factors to TF32.

    The sums stay in float32. Other products are left alone: attention has a claim of its own, and rotary phases are
    float32 in every engine.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        super().__init__()
        self._functions = {function for kind in kinds for function in _PRODUCTS[kind]}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self._functions:
            factors = [*args[:2], *(kwargs.pop(name) for name in ("input", "weight") if name in kwargs)]
            args = (
                *(round_to_tf32(factor) if factor.dtype == torch.float32 else factor for factor in factors[:2]),
                *args[2:],
            )
        return func(*args, **kwargs)


def _tf32(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in float32 whose four factors are rounded to TF32.

    query [batch, heads, length, size]; key and value with their own heads; the answer is [batch, length, heads, size].
    """
    key, value = _spread(query, key, value)
    scores = round_to_tf32(query) @ round_to_tf32(key).transpose(2, 3) * _scale(query, scaling)
    probabilities = torch.softmax(_masked(scores, attention_mask, softcap), dim=-1)
    return (round_to_tf32(probabilities) @ round_to_tf32(value)).transpose(1, 2).contiguous(), None


def _fp16_acc(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """A fused kernel whose two products keep their sums in float16; the softmax between them is float32.

    Scores are scaled before they are summed and probabilities stay undivided until the end, as kernels have them, so
    that neither leaves float16's range. Shapes as of `_tf32`.
    """
    dtype = query.dtype
    key, value = _spread(query, key, value)
    scores = _summed(query.float() * _scale(query, scaling), key.float().transpose(2, 3))
    scores = _masked(scores, attention_mask, softcap)
    exponentials = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    sums = exponentials.sum(dim=-1, keepdim=True)
    return (_summed(exponentials.to(dtype).float(), value.float()) / sums).to(dtype).transpose(1, 2).contiguous(), None


def _summed(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left @ right` in float32, the running sum rounded to float16 after every `STEP` products."""
    total = left.new_zeros((*left.shape[:-1], right.shape[-1]))
    for start in range(0, left.shape[-1], STEP):
        step = slice(start, start + STEP)
        total = (total + left[..., step] @ right[..., step, :]).half().float()
    return total


def _spread(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Key and value for every query head."""
    groups = query.shape[1] // key.shape[1]
    return key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)


def _scale(query: torch.Tensor, scaling: float | None) -> float:
    return float(query.shape[-1]) ** -0.5 if scaling is None else scaling


def _masked(scores: torch.Tensor, mask: torch.Tensor | None, softcap: float | None) -> torch.Tensor:
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    return scores if mask is None else scores + mask.float()


for _name, _function in ((TF32, _tf32), (FP16_ACC, _fp16_acc)):
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, eager_mask)
