"""Zenith's engine with faults and with correct variations, as selftest injects them: by the names below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.faults.fault import Fault, NotApplicable
from conformance.nulls.null import Null
from conformance.runner import Scalars
from zenith.engine import ZenithRunner

Change = Callable[[Scalars], Scalars]


def _rounded(found: Scalars, mask: int) -> Scalars:
    """Cut to fewer bits of the mantissa: twice the error for each bit less than bfloat16's."""
    values = (found.values.astype(np.float32).view(np.uint32) & np.uint32(mask)).view(np.float32)
    return replace(found, values=values)


def _refused(_: Scalars) -> Scalars:
    raise NotApplicable("zenith has no window")


def _crash(_: Scalars) -> Scalars:
    raise ValueError("zenith lost its way")


CHANGES: dict[str, Change] = {
    "hue.third": lambda found: replace(found, values=found.values * 1.3),
    "hue.coarse": lambda found: _rounded(found, 0xFFFC0000),  # four times bfloat16's error: between limit and 10 x it
    "hue.faint": lambda found: replace(found, values=found.values * (1 + 1e-4)),
    "hue.inert": lambda found: found,
    "hue.refused": _refused,
    "hue.crash": _crash,
    "exact.as-is": lambda found: found,
    "exact.nudge": lambda found: replace(found, values=found.values * (1 + 1e-5)),
    "exact.wrong": lambda found: replace(found, values=found.values * 1.3),
}


def fault(name: str, *, structural: bool = False, reason: str | None = None) -> Fault:
    """A fault of the hues; `reason` says why it does not apply."""
    return Fault(
        id=name,
        family="hue",
        description="The hues are wrong.",
        reference="zenith issue 7",
        suite="colours",
        dtype="float32",
        model="tiny-colours",
        structural=structural,
        scopes=("all",),
        inject=lambda host: None,
        applies=lambda configuration, role: reason,
    )


def null(name: str) -> Null:
    """A correct variation, or what claims to be one."""
    return Null(name, "Hues as another Zenith would see them.", options={"batch_size": 8}, quick=True)


class _Changed(ZenithRunner):
    option = ""

    def score_pairs(self, pairs: Any) -> Scalars:
        name = self.request.options[self.option].partition("@")[0]
        return CHANGES.get(name, CHANGES["hue.third"])(super().score_pairs(pairs))


class FaultyZenith(_Changed):
    option = "fault"


class VariedZenith(_Changed):
    option = "variation"
