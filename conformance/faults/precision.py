"""Lost precision: quantised weights and caches, narrow accumulators, narrow intermediate results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host


def _linears(host: Host, product: Callable[[Any, Any], Any]) -> None:
    """Every linear layer in scope computes `product(module, inputs)`."""
    import torch

    for module in host.modules(lambda name, module: isinstance(module, torch.nn.Linear)):
        host.wrap(module, "forward", lambda original, inputs, module=module: product(module, inputs))


def _int8_weights(host: Host) -> None:
    narrow: dict[int, Any] = {}

    def product(module: Any, inputs: Any) -> Any:
        import torch

        weight = module.weight
        if id(module) not in narrow:
            step = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
            narrow[id(module)] = (weight / step).round() * step
        return torch.nn.functional.linear(inputs, narrow[id(module)], module.bias)

    _linears(host, product)


def _tf32(host: Host) -> None:
    def rounded(values: Any) -> Any:
        """To a mantissa of 10 bits, to nearest."""
        import torch

        mantissa, exponent = torch.frexp(values)
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent).to(values.dtype)

    def product(module: Any, inputs: Any) -> Any:
        import torch

        return torch.nn.functional.linear(rounded(inputs), rounded(module.weight), module.bias)

    _linears(host, product)


def _bfloat16(host: Host) -> None:
    def product(module: Any, inputs: Any) -> Any:
        import torch

        narrow = torch.bfloat16
        bias = None if module.bias is None else module.bias.to(narrow)
        return torch.nn.functional.linear(inputs.to(narrow), module.weight.to(narrow), bias).to(inputs.dtype)

    _linears(host, product)


def _fp8(values: Any) -> Any:
    import torch

    return values.clamp(-448, 448).to(torch.float8_e4m3fn).to(values.dtype)


def _fp8_cache(host: Host) -> None:
    host.attention(lambda call: call.run(key=_fp8(call.key), value=_fp8(call.value)))


def _fp8_probabilities(host: Host) -> None:
    host.attention(lambda call: call.beside(probabilities=_fp8))


def _bfloat16_scores(host: Host) -> None:
    import torch

    host.attention(lambda call: call.beside(scores=lambda scores: scores.to(torch.bfloat16).to(scores.dtype)))


def _bfloat16_accumulator(host: Host) -> None:
    block = 16  # what one matrix instruction adds up

    def weighted(shares: Any, value: Any) -> Any:
        import torch

        total = 0
        for start in range(0, value.shape[2], block):
            part = shares[..., start : start + block] @ value[:, :, start : start + block]
            total = (total + part).to(torch.bfloat16).to(value.dtype)
        return total

    host.attention(lambda call: call.beside(weighted=weighted))


def _float16_overflow(host: Host) -> None:
    import torch

    def change(call: Any) -> Any:
        kept: list[Any] = []

        def keep(scores: Any) -> Any:
            kept[:] = [scores]
            return scores

        def overflowing(shares: Any) -> Any:
            weights = kept[0].exp().to(torch.float16).to(shares.dtype)
            return weights / weights.sum(-1, keepdim=True)

        return call.beside(masked=keep, probabilities=overflowing)

    host.attention(change)


_kernel = partial(
    Fault,
    family="precision",
    suite="attention",
    dtype="bfloat16",
    model="generation-qwen3",
    structural=False,
    scopes=("all", "middle"),
    applies=lambda config, role: None,
)
_weights = partial(
    Fault,
    family="precision",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    structural=False,
    scopes=("all", "middle"),
    applies=applies.model,
)

FAULTS = (
    _weights(
        id="precision.int8-weights",
        description="Weights of linear layers are quantised to eight bits a row.",
        reference="arXiv:2511.20621",
        inject=_int8_weights,
    ),
    _weights(
        id="precision.tf32",
        description="Linear layers of a float32 run multiply with mantissas of 10 bits.",
        reference="ml-explore/mlx#3883, kornia/kornia#4225",
        inject=_tf32,
    ),
    _weights(
        id="precision.bfloat16-linear",
        description="Linear layers of a float32 run compute in bfloat16.",
        reference="vllm-project/vllm#7779",
        inject=_bfloat16,
    ),
    _weights(
        id="precision.fp8-cache",
        description="Keys and values are stored in eight bits (e4m3).",
        reference="arXiv:2511.20621",
        dtype="bfloat16",
        inject=_fp8_cache,
        applies=lambda config, role: None,
    ),
    _kernel(
        id="precision.bfloat16-accumulator",
        description="Probabilities times values are accumulated in bfloat16, 16 keys at a time.",
        reference="vllm-project/vllm#7779",
        inject=_bfloat16_accumulator,
    ),
    _kernel(
        id="precision.bfloat16-scores",
        description="A kernel that claims fused precision rounds its scores to bfloat16.",
        reference="arXiv:2510.04212",
        inject=_bfloat16_scores,
    ),
    _kernel(
        id="precision.fp8-probabilities",
        description="Probabilities are rounded to eight bits (e4m3).",
        reference="arXiv:2511.20621",
        inject=_fp8_probabilities,
    ),
    _kernel(
        id="precision.float16-overflow",
        description="Scores are exponentiated in float16 without taking off their maximum, and overflow above 11.",
        reference="vllm-project/vllm#7779 (the same class: float16 where float32 is needed)",
        inject=_float16_overflow,
    ),
)
