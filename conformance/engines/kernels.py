"""Evidence of the attention kernels that ran: the operators that torch dispatched, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing_extensions import Self

ATTENTION_OPERATORS = frozenset(
    {
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
        "aten::_softmax",  # eager attention's, and that of SDPA's math kernel before torch 2.5
        "aten::_safe_softmax",  # SDPA's math kernel
        "flash_attn::_flash_attn_forward",  # the flash-attn package's, where it is imported
        "flash_attn::_flash_attn_varlen_forward",
    }
)


class KernelCounter(AbstractContextManager["KernelCounter"]):
    """While active, counts every attention operator that is dispatched for a device ("cpu", "cuda" ...).

    An eager attention layer dispatches one softmax, a fused one its kernel's operator, so a model's layers times its
    forward passes must all be accounted for. Other softmaxes of the model (there are none in the architectures used
    here) would show as too many.

    The counters stand in for these operators' autograd entries, so that no other operator pays for them: a dispatch
    mode, which sees all, added a fifth to a half to every decoding step of a small model. What is counted has no
    gradients. Inference mode skips the entries, so runners use `no_grad`.
    """

    def __init__(self, device: str) -> None:
        self.counts: Counter[str] = Counter()
        self._key = f"Autograd{torch._C._dispatch_key_for_device(device)}"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for name in ATTENTION_OPERATORS:
                namespace, _, short = name.partition("::")
                operator = getattr(getattr(torch.ops, namespace), short, None)
                if operator is not None:  # this torch, or a package that was imported, has it
                    library = stack.enter_context(torch.library._scoped_library(namespace, "IMPL"))
                    library.impl(operator.default, self._counting(name, operator.default), self._key)
            self._scope = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.__exit__(kind, error, trace)

    def _counting(self, name: str, operator: Any) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] += 1
            with torch._C._AutoDispatchBelowAutograd():  # what the operator itself calls is part of it
                return operator(*args, **kwargs)

        return count
