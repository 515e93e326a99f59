"""Counts attention calls in the process of a SGLang scheduler, where the adapter cannot look.

SGLang is told of `counter` as text (its server argument `forward_hooks`) and has it make a hook for every attention
layer. A call becomes a line of a file, whole or not at all, so that a process for each device may write to the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Hook = Callable[[Any, Any, Any], None]


def counter(config: Mapping[str, Any]) -> Hook:
    """What SGLang calls after every attention layer and vision tower, or module that is named like one.

    What a tower hands on is kept where the folder `features` exists.
    """
    import numpy as np
    from sglang.srt.layers.attention.vision import VisionAttention
    from sglang.srt.layers.radix_attention import RadixAttention
    from sglang.srt.model_executor.forward_context import get_attn_backend

    calls = os.open(config["calls"], os.O_WRONLY | os.O_APPEND)

    def write(line: Mapping[str, Any], answer: Any) -> None:
        line = {**line, "dtype": str(answer.dtype).removeprefix("torch.")}
        os.write(calls, f"{json.dumps(line)}\n".encode())

    def count(module: Any, _: Any, output: Any) -> None:
        answer = output[0] if isinstance(output, tuple) else output
        if isinstance(module, RadixAttention):
            write({"layer": module.layer_id, "kernel": _path(get_attn_backend())}, answer)
        elif isinstance(module, VisionAttention):
            write({"tower": module.qkv_backend_name, "kernel": _path(module.qkv_backend)}, answer)
        elif hasattr(module, "patch_embed") and (folder := Path(config["features"])).is_dir():
            np.save(folder / f"{len(list(folder.iterdir())):06}.npy", answer.detach().float().cpu().numpy())

    return count


def _path(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
