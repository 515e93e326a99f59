"""The runner behind reference and yardsticks: transformers on the CPU, in fp64 or with one legal kind of rounding."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from conformance.engines.transformers import TransformersRunner
from conformance.engines.vision import PLACES_TEXT
from conformance.reference.precision import Widened, WidenedByModule
from conformance.reference.reduced import Tf32Products
from conformance.runner import LoadRequest

IDEAL_FUSED = "conformance_ideal_fused"


class ReferenceRunner(TransformersRunner):
    """Options beside the batch size: `widen` (fp64 throughout), `widen_by_module` (the same with weights that stay in
    float32), `frequency_ulps` (rotary frequencies moved), and `tf32` (the products, "matmul" and "convolution", whose
    factors are rounded to TF32).

    The attention `conformance_ideal_fused` is the yardstick of fused kernels; `conformance.reference.reduced` has those
    of reduced ones.
    """

    def __init__(self, request: LoadRequest) -> None:
        if request.device != "cpu":
            raise ValueError(f"the reference is computed on the CPU, not on {request.device!r}")
        # Positions beside pictures are computed here, and do not depend on the version of transformers; what is claimed
        # of a device's products is emulated, and no switch of this CPU's.
        options = {"positions": PLACES_TEXT, **request.options}
        super().__init__(replace(request, options=options, matmul="ieee", convolution="ieee"))

    def __enter__(self) -> ReferenceRunner:
        super().__enter__()
        if self.request.options.get("widen_by_module"):
            WidenedByModule(self.model)
        move_frequencies(self.model, int(self.request.options.get("frequency_ulps", 0)))
        return self

    def _computing(self) -> AbstractContextManager[Any]:
        widens = self.request.options.get("widen") or self.request.options.get("widen_by_module")
        if reduced := self.request.options.get("tf32"):
            return Tf32Products(reduced)
        return Widened() if widens else super()._computing()


def move_frequencies(model: torch.nn.Module, ulps: int) -> None:
    """Move every rotary frequency by one ulp up (1) or down (-1): devices differ by that, and all are right."""
    if not ulps:
        return
    towards = float("inf") if ulps > 0 else 0.0
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if name.endswith("inv_freq"):
                moved = torch.nextafter(buffer.float(), torch.full_like(buffer.float(), towards)).to(buffer.dtype)
                setattr(module, name, moved)


def _ideal_fused(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """A fused kernel without error of its own: scores in float32, probabilities and output rounded to the dtype.

    Scores go through softcap * tanh(scores / softcap) first where the model has one (Gemma 2, 2408.00118, eq. 1).
    query [batch, heads, length, size]; key and value with their own heads; the answer is [batch, length, heads, size].
    """
    dtype, groups = query.dtype, query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    exact = query.double() @ key.double().transpose(2, 3) * scale
    scores = (exact if softcap is None else softcap * torch.tanh(exact / softcap)).float()
    if attention_mask is not None:
        scores = scores + attention_mask.float()
    probabilities = torch.softmax(scores.double(), dim=-1).to(dtype)
    output = (probabilities.double() @ value.double()).to(dtype)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(IDEAL_FUSED, _ideal_fused)
AttentionMaskInterface.register(IDEAL_FUSED, eager_mask)
