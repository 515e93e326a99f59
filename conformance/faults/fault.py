"""What a fault is, and how an injection of it is written: `ID`, `ID@middle`, `ID@rate=0.01`, `ID@middle,rate=0.01`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

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
    variant: str = ""  # the engine's variant that alone has it, where that is so


@dataclass(frozen=True)
class Injection:
    """A fault with its scope and rate: in all layers or in the middle one, at a share of calls, its own where None."""

    fault: str
    scope: Scope = "all"
    rate: float | None = None

    def __str__(self) -> str:
        said = [self.scope] * (self.scope != "all") + ([] if self.rate is None else [f"rate={self.rate:g}"])
        return f"{self.fault}@{','.join(said)}" if said else self.fault


def form_faults(fault: Fault) -> list[str]:
    """Why a fault could never be injected, a sentence each: nobody would see that it is not tried."""
    found = []
    if not isinstance(fault.id, str) or not _ID.fullmatch(fault.id):
        found.append(f"the id {fault.id!r} must be of small letters and digits, as in family.what-is-wrong")
    if not fault.scopes or not set(fault.scopes) <= set(get_args(Scope)):
        found.append(f"{fault.id!r} has the scopes {fault.scopes!r}, but must have one or both of 'all' and 'middle'")
    if not 0 < fault.rate <= 1:
        found.append(f"{fault.id!r} has the rate {fault.rate!r}, but it is a share of calls, above 0 and at most 1")
    return found


def parse_injection(text: str) -> Injection:
    """The injection that is written so; UsageError where it is not written as one."""
    identifier, at, how = text.partition("@")
    said = how.split(",") if at else []
    scope: Scope = "middle" if said[:1] == ["middle"] else "all"
    said = said[scope == "middle" :]
    given = _RATE.fullmatch(said[0]) if len(said) == 1 else None
    rate = float(given[1]) if given else None
    if not _ID.fullmatch(identifier) or (said and not given) or (rate is not None and not 0 < rate <= 1):
        raise UsageError(f"{printable(text)!r} is no injection; it must look like ID, ID@middle or ID@middle,rate=0.01")
    return Injection(identifier, scope, rate)
