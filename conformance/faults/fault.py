"""What a fault is, and how an injection of it is written: `ID`, `ID@middle`, `ID@rate=0.01`, `ID@middle,rate=0.01`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from conformance.names import UsageError, printable

if TYPE_CHECKING:
    from conformance.faults.host import Host

Scope = Literal["all", "middle"]

_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_RATE = re.compile(r"rate=(\d+(?:\.\d+)?(?:e-\d+)?)")


class NotApplicable(Exception):
    """The loaded model cannot have this fault; the message says why. It counts as neither found nor missed."""


@dataclass(frozen=True)
class Fault:
    """One thing that an engine can get wrong.

    `inject(host)` makes the loaded model of `host` do it, by hooks and wrapped functions that `host` takes away again.
    It may be injected only where `applies(configuration, role)`, given the model's config.json, answers None;
    otherwise that says why not ("the model has no sliding window").
    """

    id: str  # "window.plus-one": family, then what is wrong
    family: str
    description: str  # one sentence: what the engine does
    reference: str  # where it happened: the address of an upstream report, or the row of the fault model
    suite: str  # where it must be found: the suite, and the dtype below
    dtype: str
    model: str  # the embedded model on which selftest injects it by default
    structural: bool  # it must be found in bfloat16 too: wrong code for the whole model, not lost precision
    scopes: tuple[Scope, ...]
    inject: Callable[[Host], None]
    applies: Callable[[Mapping[str, Any], str], str | None]
    rate: float = 1.0  # the share of calls at which it happens, where an injection names no other


@dataclass(frozen=True)
class Injection:
    """A fault with its scope and rate: in all layers or in the middle one, at a share of calls, its own where None."""

    fault: str
    scope: Scope = "all"
    rate: float | None = None

    def __str__(self) -> str:
        said = [self.scope] * (self.scope != "all") + ([] if self.rate is None else [f"rate={self.rate:g}"])
        return f"{self.fault}@{','.join(said)}" if said else self.fault


def is_id(text: str) -> bool:
    """Whether an injection can name a fault of that id: lower-case words and numbers, with dots or dashes between."""
    return _ID.fullmatch(text) is not None


def parse_injection(text: str) -> Injection:
    """The injection that is written so; UsageError where it is not written as one."""
    identifier, at, how = text.partition("@")
    said = how.split(",") if at else []
    scope: Scope = "middle" if said[:1] == ["middle"] else "all"
    said = said[scope == "middle" :]
    given = _RATE.fullmatch(said[0]) if len(said) == 1 else None
    rate = float(given[1]) if given else None
    if not is_id(identifier) or (said and not given) or (rate is not None and not 0 < rate <= 1):
        raise UsageError(f"{printable(text)!r} is no injection; it must look like ID, ID@middle or ID@middle,rate=0.01")
    return Injection(identifier, scope, rate)
