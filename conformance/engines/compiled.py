"""flex_attention, which torch compiles: never unfused without anybody noticing, and counted where no operator shows.

Measured: after eight compilations of one function torch runs it unfused, with a warning that workers do not show.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from transformers.integrations import flex_attention

if TYPE_CHECKING:
    from typing_extensions import Self

FLEX = "flex_attention"

RECOMPILATIONS = 64
"""Every new kind of shape costs one, and torch's own limit of 8 is reached by one suite."""

_TEMPLATE = "triton_tem_"
"""How inductor calls the Triton kernels that it makes from flex_attention's templates, one launch a call."""


def never_unfused() -> None:
    """From here on this process raises where torch would give up compiling and compute unfused."""
    settings = torch._dynamo.config
    settings.recompile_limit = RECOMPILATIONS
    settings.fail_on_recompile_limit_hit = True


class CompiledCounter(AbstractContextManager["CompiledCounter"]):
    """While active, counts calls of compiled flex_attention: on accelerators its kernels, as the profiler sees them.

    On the CPU the compiled kernel has no name of its own in any profile; counted are the calls into compiled code,
    which after `never_unfused` either run compiled or raise.
    """

    def __init__(self, device: str) -> None:
        self.counts: Counter[str] = Counter()
        self._device = device

    def __enter__(self) -> Self:
        if self._device == "cpu":
            self._plain = flex_attention.compile_friendly_flex_attention
            flex_attention.compile_friendly_flex_attention = self._counted
        else:
            kind = getattr(torch.profiler.ProfilerActivity, self._device.upper())
            profiler: Any = torch.profiler.profile  # its methods have no types
            self._profile = profiler(activities=[kind])
            self._profile.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._device == "cpu":
            flex_attention.compile_friendly_flex_attention = self._plain
            return
        self._profile.__exit__(kind, error, trace)
        for event in self._profile.events() or ():
            if event.name.startswith(_TEMPLATE) and FLEX in event.name:
                self.counts[event.name] += 1

    def _counted(self, *args: Any, **kwargs: Any) -> Any:
        self.counts[f"compiled {FLEX}"] += 1
        return self._plain(*args, **kwargs)
