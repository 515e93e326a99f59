"""Counts attention calls in the process of a SGLang scheduler, where the adapter cannot look.

SGLang is told of `counter` as text (its server argument `forward_hooks`) and has it make a hook for every attention
layer. A call becomes a line of a file, whole or not at all, so that a process for each device may write to the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

Hook = Callable[[Any, Any, Any], None]


def counter(config: Mapping[str, Any]) -> Hook:
    """What SGLang calls after every attention layer, or module that is named like one."""
    from sglang.srt.layers.radix_attention import RadixAttention
    from sglang.srt.model_executor.forward_context import get_attn_backend

    calls = os.open(config["calls"], os.O_WRONLY | os.O_APPEND)

    def count(module: Any, _: Any, output: Any) -> None:
        if isinstance(module, RadixAttention):
            backend = type(get_attn_backend())
            answer = output[0] if isinstance(output, tuple) else output
            line = {
                "layer": module.layer_id,
                "kernel": f"{backend.__module__}.{backend.__qualname__}",
                "dtype": str(answer.dtype).removeprefix("torch."),
            }
            os.write(calls, f"{json.dumps(line)}\n".encode())

    return count
