"""One call of the attention kernel, as faults see it, change it and, where nothing else will do, compute it themselves.

Only faults import this module, when they are injected: it needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from conformance.reference.runner import IDEAL_FUSED

Change = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class KernelCall:
    """`query` is [batch, heads, queries, size], `key` and `value` are [batch, kv heads, keys, size]."""

    module: Any
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: Any  # in the form that the implementation takes
    options: Mapping[str, Any]
    kernel: Callable[..., Any]
    implementation: str

    @property
    def groups(self) -> int:
        """Query heads a key head."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        given = self.options.get("scaling")
        return float(self.query.shape[-1] ** -0.5 if given is None else given)

    @property
    def is_decode(self) -> bool:
        """Whether one new token reads a cache."""
        return self.query.shape[2] == 1 and self.key.shape[2] > 1

    def run(self, *, visible: torch.Tensor | None = None, **changes: Any) -> torch.Tensor:
        """The kernel's answer, [batch, queries, heads, size], to other inputs, options or `visible` keys.

        An implementation whose masks cannot be written from `visible` runs as it was asked, and the answer is computed
        beside it.
        """
        inputs = {name: changes.pop(name) for name in ("query", "key", "value") if name in changes}
        call = replace(self, **inputs, options={**self.options, **changes})
        if visible is not None:
            if self.implementation == "sdpa":
                mask = visible
            elif self.implementation in ("eager", IDEAL_FUSED):
                least = torch.finfo(self.query.dtype).min
                mask = torch.zeros(visible.shape, dtype=self.query.dtype, device=self.query.device)
                mask = mask.masked_fill(~visible, least)
            else:
                self._run_as_asked()
                return call.computed(visible=visible)
            call = replace(call, mask=mask)
        return call._run_as_asked()

    def beside(self, **changes: Any) -> torch.Tensor:
        """As `computed`, once the kernel has run as it was asked, so that it is counted.

        Queries that see no key, which are padding, have the kernel's own answer: nothing is promised of it.
        """
        honest = self._run_as_asked()
        blind = ~self.visible().any(-1).transpose(1, 2)[..., None]
        return torch.where(blind, honest, self.computed(**changes))

    def computed(
        self,
        *,
        visible: torch.Tensor | None = None,
        scores: Change | None = None,
        masked: Change | None = None,
        probabilities: Change | None = None,
        weighted: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Attention in float32 with one step changed: the scores, the masked scores, the probabilities, or the last
        product of probabilities and values. No operator that is counted as a kernel runs."""
        key = self.key.repeat_interleave(self.groups, 1).float()
        value = self.value.repeat_interleave(self.groups, 1).float()
        found = self.query.float() @ key.transpose(2, 3) * self.scale
        cap = self.options.get("softcap")
        if cap is not None:
            found = cap * torch.tanh(found / cap)
        found = scores(found) if scores else found
        seen = self.visible() if visible is None else visible
        found = found.masked_fill(~seen, torch.finfo(found.dtype).min)
        found = masked(found) if masked else found
        shares = (found - found.amax(-1, keepdim=True)).exp()
        shares = shares / shares.sum(-1, keepdim=True)
        shares = probabilities(shares) if probabilities else shares
        output = weighted(shares, value) if weighted else shares @ value
        return output.to(self.query.dtype).transpose(1, 2).contiguous()

    def visible(self) -> torch.Tensor:
        """Which keys each query sees: bool [batch, 1, queries, keys]."""
        batch, _, queries, _ = self.query.shape
        keys, device = self.key.shape[2], self.query.device
        mask = self.mask
        if type(mask).__name__ == "BlockMask":
            from torch.nn.attention.flex_attention import create_mask

            return create_mask(mask.mask_mod, batch, 1, queries, keys, device=str(device))
        if mask is None or mask.dim() == 2:
            causal = self.options.get("is_causal")
            causal = getattr(self.module, "is_causal", False) if causal is None else causal
            at, key = positions(self)
            seen = key <= at if causal else torch.ones_like(key <= at)
            window = self.options.get("sliding_window")
            seen = seen & (key > at - window) if window and causal else seen
            seen = seen.expand(batch, 1, queries, keys)
            return seen if mask is None else seen & mask[:, None, None, -keys:].bool()
        mask = mask[..., :keys]  # older versions hand out masks of the whole cache
        shown: torch.Tensor = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        return shown.expand(batch, shown.shape[1], queries, keys)

    def _run_as_asked(self) -> torch.Tensor:
        answer: torch.Tensor = self.kernel(self.module, self.query, self.key, self.value, self.mask, **self.options)[0]
        return answer


def positions(call: KernelCall) -> tuple[torch.Tensor, torch.Tensor]:
    """Where queries, [queries, 1], and keys, [1, keys], stand: the last query at the last key."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    at = torch.arange(keys - queries, keys, device=call.query.device)[:, None]
    return at, torch.arange(keys, device=call.query.device)[None, :]


def shifted(seen: torch.Tensor, by: int) -> torch.Tensor:
    """`seen` moved along the keys, to higher ones where `by` is 1 and to lower where -1; False comes in."""
    moved = torch.zeros_like(seen)
    if by > 0:
        moved[..., by:] = seen[..., :-by]
    else:
        moved[..., :by] = seen[..., -by:]
    return moved


def real_keys(seen: torch.Tensor) -> torch.Tensor:
    """Keys that any query sees, [batch, 1, 1, keys]: all but padding."""
    return seen.any(-2, keepdim=True)


def rotated_half(values: torch.Tensor) -> torch.Tensor:
    """(-second half, first half) of the last axis."""
    first, second = values.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def attending(module: Any, implementation: str, change: Callable[..., Any]) -> Callable[..., Any]:
    """A forward method for an encoder's self-attention that calls no attention function (transformers before 5).

    It makes query, key and value as the module does, and calls `change(kernel, module, query, key, value, mask)`.
    """

    def kernel(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_: Any) -> tuple[Any, None]:
        if implementation == "sdpa":
            output = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        else:
            found = query @ key.transpose(2, 3) * scaling
            output = torch.softmax(found if mask is None else found + mask, dim=-1) @ value
        return output.transpose(1, 2).contiguous(), None

    def forward(original: Any, hidden_states: Any, attention_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        heads, size = module.num_attention_heads, module.attention_head_size
        parts = [
            part(hidden_states).unflatten(-1, (heads, size)).transpose(1, 2)
            for part in (module.query, module.key, module.value)
        ]
        output, _ = change(kernel, module, *parts, attention_mask, scaling=size**-0.5)
        return output.flatten(-2), None

    return forward
