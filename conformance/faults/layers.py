"""Norms and activations: another epsilon, another order of steps, another function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host, during


def _epsilon(module: Any) -> str | None:
    """The attribute in which a norm keeps its epsilon."""
    return next((name for name in ("variance_epsilon", "eps") if hasattr(module, name)), None)


def _is_rms(name: str, module: Any) -> bool:
    return type(module).__name__.endswith("RMSNorm") and _epsilon(module) is not None


def _adds_one(module: Any) -> bool:
    """Whether a norm multiplies by 1 + weight, as Gemma's do."""
    return type(module).__name__.startswith("Gemma")


def _norms(host: Host, change: Callable[..., Any]) -> None:
    """Every RMS norm in scope answers `change(module, original, hidden)`."""
    for module in host.modules(_is_rms):
        host.wrap(module, "forward", partial(change, module))


def _eps(value: float) -> Callable[[Host], None]:
    def change(module: Any, original: Any, hidden: Any) -> Any:
        with during(module, str(_epsilon(module)), value):
            return original(hidden)

    return lambda host: _norms(host, change)


def _weight_plus(amount: float) -> Callable[[Host], None]:
    """The norm multiplies by its weight plus `amount`."""

    def change(module: Any, original: Any, hidden: Any) -> Any:
        import torch

        with during(module, "weight", torch.nn.Parameter(module.weight + amount, requires_grad=False)):
            return original(hidden)

    return lambda host: _norms(host, change)


def _cast_first(host: Host) -> None:
    def change(module: Any, original: Any, hidden: Any) -> Any:
        import torch

        neutral = torch.full_like(module.weight, 0.0 if _adds_one(module) else 1.0)
        with during(module, "weight", torch.nn.Parameter(neutral, requires_grad=False)):
            normed = original(hidden)
        return normed.to(torch.bfloat16).to(normed.dtype) * (module.weight + (1 - neutral))

    _norms(host, change)


def _dropped(wanted: Callable[[str, Any], bool]) -> Callable[[Host], None]:
    """The norms that are `wanted` hand on what they get."""

    def inject(host: Host) -> None:
        for module in host.modules(lambda name, module: _is_rms(name, module) and wanted(name, module)):
            host.wrap(module, "forward", lambda original, hidden: hidden)

    return inject


def _activation(function: str, **options: Any) -> Callable[[Host], None]:
    """torch.nn.functional's `function` in the place of the model's own."""
    names = ("act_fn", "intermediate_act_fn")

    def change(original: Any, hidden: Any) -> Any:
        import torch

        return getattr(torch.nn.functional, function)(hidden, **options)

    def inject(host: Host) -> None:
        for module in host.modules(lambda name, module: name.rpartition(".")[2] in names):
            host.wrap(module, "forward", change)

    return inject


def _gemma(config: applies.Config, role: str) -> str | None:
    return None if str(config.get("model_type")).startswith("gemma") else "its norms multiply by the weight alone"


def _no_gemma(config: applies.Config, role: str) -> str | None:
    return None if _gemma(config, role) else "its norms multiply by 1 + weight as it is"


def _silu(config: applies.Config, role: str) -> str | None:
    return None if config.get("hidden_act") == "silu" else f"its activation is {config.get('hidden_act')}"


def _gelu(config: applies.Config, role: str) -> str | None:
    return None if config.get("hidden_act") == "gelu" else f"its activation is {config.get('hidden_act')}"


_norm = partial(
    Fault,
    family="norm",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    scopes=("all", "middle"),
    applies=applies.rms_norms,
)

FAULTS = (
    _norm(
        id="norm.eps-1e-5",
        description="Norms add 1e-5 to the mean square, where the model says 1e-6.",
        reference="vmlx#374, huggingface/transformers#38025",
        structural=False,
        inject=_eps(1e-5),
    ),
    _norm(
        id="norm.eps-1e-3",
        description="Norms add 1e-3 to the mean square.",
        reference="vmlx#374",
        structural=False,
        inject=_eps(1e-3),
    ),
    _norm(
        id="norm.one-added",
        description="Norms multiply by 1 + weight, where the model multiplies by the weight.",
        reference="NVIDIA-NeMo/Megatron-Bridge#5712",
        structural=True,
        inject=_weight_plus(1.0),
        applies=applies.where(applies.rms_norms, _no_gemma),
    ),
    _norm(
        id="norm.one-dropped",
        description="Norms multiply by the weight, where the model multiplies by 1 + weight.",
        reference="NVIDIA-NeMo/Megatron-Bridge#5712",
        suite="generation",
        model="generation-gemma2",
        structural=True,
        inject=_weight_plus(-1.0),
        applies=applies.where(applies.rms_norms, _gemma),
    ),
    _norm(
        id="norm.cast-first",
        description="Norms round to bfloat16 before they multiply by the weight, in a float32 run too.",
        reference="huggingface/transformers#29402, apache/tvm#15856",
        structural=False,
        inject=_cast_first,
    ),
    _norm(
        id="norm.qk-dropped",
        description="Queries and keys are not normalised.",
        reference="huggingface/transformers#48762",
        structural=True,
        inject=_dropped(lambda name, module: name.endswith(("q_norm", "k_norm"))),
    ),
    _norm(
        id="norm.final-dropped",
        description="The norm behind the last layer is left out.",
        reference="huggingface/transformers#48762",
        structural=True,
        scopes=("all",),
        inject=_dropped(lambda name, module: name in ("norm", "model.norm", "model.language_model.norm")),
    ),
    Fault(
        id="activation.gelu-tanh",
        family="activation",
        description="GELU is approximated by a tanh, where the model has the exact one.",
        reference="huggingface/transformers#29402",
        suite="embedding",
        dtype="float32",
        model="embedding-xlmr",
        structural=False,
        scopes=("all", "middle"),
        inject=_activation("gelu", approximate="tanh"),
        applies=applies.where(applies.model, _gelu),
    ),
    Fault(
        id="activation.gelu-for-silu",
        family="activation",
        description="GELU is computed where the model has SiLU.",
        reference="huggingface/transformers#29402",
        suite="embedding",
        dtype="float32",
        model="embedding-qwen3",
        structural=True,
        scopes=("all", "middle"),
        inject=_activation("gelu"),
        applies=applies.where(applies.model, _silu),
    ),
)
