"""Transformers with one fault: the answers of every capability are broken as the option `fault` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broken_outputs import ALL

from conformance.engines.transformers import TransformersRunner

FAULTS = {fault.__name__: (fault, kinds) for fault, kinds in ALL.items()}
"""By name; each with the kinds of observation that it can break."""


class FaultyRunner(TransformersRunner):
    """Loads and computes as its base does; only what it hands back is broken."""


def _broken(capability: str) -> Callable[..., Any]:
    honest = getattr(TransformersRunner, capability)

    def answer(self: FaultyRunner, *args: Any, **kwargs: Any) -> Any:
        found = honest(self, *args, **kwargs)
        fault, kinds = FAULTS[self.request.options["fault"]]
        return fault(found) if isinstance(found, kinds) else found

    return answer


for _capability in TransformersRunner.capabilities:
    setattr(FaultyRunner, _capability, _broken(_capability))
