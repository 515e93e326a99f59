"""Evidence of the attention kernels that ran: the operators that torch dispatched, counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

ATTENTION_OPERATORS = frozenset(
    {
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
        "aten::_softmax",  # eager attention's, and that of SDPA's math kernel before torch 2.5
        "aten::_safe_softmax",  # SDPA's math kernel
    }
)


class KernelCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, counts every attention operator that reaches the dispatcher below autograd.

    An eager attention layer dispatches one softmax, a fused one its kernel's operator, so a model's layers times its
    forward passes must all be accounted for. Other softmaxes of the model (there are none in the architectures used
    here) would show as too many. Inference mode bypasses dispatch modes (torch 2.13), so runners use `no_grad`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split(".")[0]
        if name in ATTENTION_OPERATORS:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))
