"""The attention function that a transformers model's layers call, called with tensors of our own choice.

The mask is made by transformers' own code for the implementation, from left-padded rows, as the model would pass it:
none where it leaves it out (equal lengths, one query), additive, boolean, a block mask, or one row of flags.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from transformers import masking_utils
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, causal_mask_function, sliding_window_overlay
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from conformance.engines.chosen_kernels import spelt
from conformance.runner import AttentionCall, NotSupported


class ModelAttention:
    """A kernel for `kernel_calls.perform`: what the layers of `model` call for attention.

    Raises NotSupported where the model has no attention layer whose function can be found.
    """

    def __init__(self, model: Any) -> None:
        self._carrier = _first_attention(model)
        self._implementation = str(model.config.get_text_config()._attn_implementation)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: AttentionCall
    ) -> torch.Tensor:
        """The output as [batch, heads, queries, size]. ValueError where the function takes no softcap."""
        function = self._function(call)
        if call.lengths is not None:
            key, value = (_left_padded(each, call.lengths) for each in (key, value))
        arguments: dict[str, Any] = {"sliding_window": call.window}
        if call.softcap is not None:
            arguments["softcap"] = call.softcap
        output, *_ = function(
            self._layer(query, key, call),
            query,
            key,
            value,
            self._mask(query, key, call),
            dropout=0.0,
            scaling=query.shape[-1] ** -0.5 if call.scale is None else call.scale,
            **arguments,
        )
        return output.transpose(1, 2) if isinstance(output, torch.Tensor) and output.ndim == 4 else output

    def _function(self, call: AttentionCall) -> Callable[..., Any]:
        # As models do: eager is the architecture's own function, unless one is registered in its place.
        own = self._implementation == "eager" and "eager" not in ALL_ATTENTION_FUNCTIONS
        found = _eager(self._carrier) if own else None
        if found is None:
            found = ALL_ATTENTION_FUNCTIONS[self._implementation]
        elif call.softcap is not None and not _takes(found, "softcap"):
            # Every architecture has an eager function of its own; Gemma 2's is the one with a softcap.
            from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

            found = eager_attention_forward
        if call.softcap is not None and not _takes(found, "softcap"):  # some versions would drop it without a word
            raise ValueError(f"transformers' {spelt(self._implementation)} attention takes no softcap")
        return found

    def _layer(self, query: torch.Tensor, key: torch.Tensor, call: AttentionCall) -> Any:
        """What functions read from the layer that calls them."""
        return SimpleNamespace(
            config=self._carrier.config,
            layer_idx=self._carrier.layer_idx,
            training=False,
            head_dim=query.shape[-1],
            num_key_value_groups=query.shape[1] // key.shape[1],
            is_causal=_is_causal(call),
            modules=self._carrier.modules,
        )

    def _mask(self, query: torch.Tensor, key: torch.Tensor, call: AttentionCall) -> Any:
        batch, queries, keys = len(query), query.shape[2], key.shape[2]
        padding = None
        if call.lengths is not None and any(length < keys for length in call.lengths):
            starts = keys - torch.tensor(call.lengths, device=key.device)
            padding = torch.arange(keys, device=key.device) >= starts[:, None]
        causal = _is_causal(call)
        function: Callable[..., Any] = causal_mask_function if causal else _every
        if call.window is not None:
            function = masking_utils.and_masks(sliding_window_overlay(call.window), function)
        if not causal and padding is None:
            return None  # as encoders do
        make = ALL_MASK_ATTENTION_FUNCTIONS[self._implementation]
        offset = keys - queries
        # transformers 5 takes the number of queries and where they begin, 4 their positions
        place: dict[str, Any] = {"q_length": queries, "q_offset": offset}
        if "cache_position" in inspect.signature(make).parameters:
            place = {"cache_position": torch.arange(offset, keys, device=key.device)}
        return make(
            batch_size=batch,
            kv_length=keys,
            kv_offset=0,
            mask_function=function,
            attention_mask=padding,
            local_size=call.window,
            allow_is_causal_skip=causal,
            dtype=query.dtype,
            device=query.device,
            config=self._carrier.config,
            **place,
        )


def _first_attention(model: Any) -> Any:
    for module in model.modules():
        # A text model's own layer, not one of a vision tower, which may run on another implementation.
        if hasattr(module, "layer_idx") and hasattr(module, "is_causal") and hasattr(module, "config"):
            return module
    raise NotSupported(f"{type(model).__name__} has no attention layer that can be called alone")


def _eager(layer: Any) -> Callable[..., Any] | None:
    """The eager function of the layer's own architecture."""
    return getattr(sys.modules[type(layer).__module__], "eager_attention_forward", None)


def _is_causal(call: AttentionCall) -> bool:
    return call.causal or call.window is not None  # a window ends at the query's own position


def _takes(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters


def _every(batch: Any, head: Any, query: Any, key: Any) -> Any:
    """A mask function that lets every query see every key."""
    return query >= 0


def _left_padded(values: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
    """Rows with their padding moved from the right to the left, where a decoder's batch has it."""
    return torch.stack([row.roll(row.shape[1] - n, dims=1) for row, n in zip(values, lengths, strict=True)])
