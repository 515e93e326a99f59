"""Linear layers and norms that are summed in another order, all in float32 and rounded once, as kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from conformance.nulls.runner import NullRunner

_LANES = 8
"""Partial sums of a norm: elements 0, 8, 16 ... then 1, 9, 17 ..., as lanes of a vector unit add up."""


def split_linear(runner: NullRunner, splits: int) -> None:
    """Every linear layer's inner products in `splits` parts, each summed in float32, then together, then rounded."""
    for module in runner.model.modules():
        if isinstance(module, torch.nn.Linear):
            _replace(runner, module, "forward", _split(module, splits))


def _split(module: torch.nn.Linear, splits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    size = -(-module.in_features // splits)
    # As many as there are: a layer may have fewer inputs than parts are asked for.
    weights = [part.float().t() for part in torch.split(module.weight, size, dim=1)]
    bias = None if module.bias is None else module.bias.float()

    def forward(values: torch.Tensor) -> torch.Tensor:
        parts = torch.split(values.float(), size, dim=-1)
        total: torch.Tensor = parts[0] @ weights[0]
        for part, weight in zip(parts[1:], weights[1:], strict=True):
            total = total + part @ weight
        return (total if bias is None else total + bias).to(values.dtype)

    return forward


def resummed_norms(runner: NullRunner, *, wide: bool) -> None:
    """Every layer norm and rms norm with its sums in another order, or in float64 where `wide`.

    An rms norm is known by its class's name, as transformers has one for each architecture.
    """
    for module in runner.model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            _replace(runner, module, "forward", _layer_norm(module, wide))
        elif type(module).__name__.endswith("RMSNorm"):
            if hasattr(module, "_norm"):  # Gemma's, which multiplies by one plus the weight in float32
                _replace(runner, module, "_norm", lambda values, eps=module.eps: _scaled(values, eps, wide))
            elif hasattr(module, "variance_epsilon"):
                _replace(runner, module, "forward", _rms_norm(module, wide))


def _rms_norm(module: Any, wide: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(values: torch.Tensor) -> torch.Tensor:
        scaled = _scaled(values.float(), module.variance_epsilon, wide)
        found: torch.Tensor = module.weight * scaled.to(values.dtype)
        return found

    return forward


def _scaled(values: torch.Tensor, eps: float, wide: bool) -> torch.Tensor:
    variance = _mean(values.square(), wide)
    return values / torch.sqrt(variance + eps)


def _layer_norm(module: torch.nn.LayerNorm, wide: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(values: torch.Tensor) -> torch.Tensor:
        centred = values.float() - _mean(values.float(), wide)
        found = centred / torch.sqrt(_mean(centred.square(), wide) + module.eps)
        if module.weight is not None:
            found = found * module.weight.float()
        if module.bias is not None:
            found = found + module.bias.float()
        return found.to(values.dtype)

    return forward


def _mean(values: torch.Tensor, wide: bool) -> torch.Tensor:
    """The mean over the last axis, kept, in float32."""
    if wide:
        return values.double().mean(-1, keepdim=True).float()
    total = values[..., 0::_LANES].sum(-1, keepdim=True)
    for lane in range(1, _LANES):
        total = total + values[..., lane::_LANES].sum(-1, keepdim=True)
    return total / values.shape[-1]


def _replace(runner: NullRunner, module: torch.nn.Module, method: str, by: Callable[..., torch.Tensor]) -> None:
    setattr(module, method, by)
    runner.undo(lambda: delattr(module, method))
