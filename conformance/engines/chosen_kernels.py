"""One of torch's SDPA kernels, and no other, as an attention backend of transformers: `sdpa:flash` and its like.

Left free, `sdpa` takes whichever kernel fits a call, so one run mixes several. Under these names every call takes the
one kernel or fails. They are for this suite; nobody serves models under them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

KERNELS = {
    "sdpa:flash": SDPBackend.FLASH_ATTENTION,
    "sdpa:cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa:efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa:math": SDPBackend.MATH,
}
"""The names, as torch's own switch spells the kernels in lower case."""

_WITHOUT_GROUPS = frozenset({"sdpa:efficient"})
"""Kernels that refuse grouped heads without a mask: keys and values are repeated for them, as transformers does for
masked calls."""


_PREFIX = "sdpa_only_"


def registered(name: str) -> str:
    """The name under which transformers knows an attention backend, which is registered if it is one of these.

    It is not the same one, because transformers takes every name with "flash" in it for the flash-attn package's.
    """
    if name not in KERNELS:
        return name
    mine = f"{_PREFIX}{list(KERNELS).index(name)}"
    AttentionInterface.register(mine, _only(KERNELS[name], repeats=name in _WITHOUT_GROUPS))
    AttentionMaskInterface.register(mine, sdpa_mask)
    return mine


def spelt(name: str) -> str:
    """The attention backend that transformers calls `name`."""
    return list(KERNELS)[int(name.removeprefix(_PREFIX))] if name.startswith(_PREFIX) else name


def _only(kernel: SDPBackend, *, repeats: bool) -> Callable[..., Any]:
    def attention(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        **kwargs: Any,
    ) -> Any:
        called: Any = module
        groups = query.shape[1] // key.shape[1]
        if repeats and groups > 1:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
            called = SimpleNamespace(is_causal=getattr(module, "is_causal", True))
        with sdpa_kernel(kernel):
            return sdpa_attention_forward(called, query, key, value, attention_mask, **kwargs)

    return attention
