"""What of selftest is wanted, as it is typed; nothing here needs numpy, so that a mistyped name is answered at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from conformance.faults.fault import Fault, Injection, parse_injection
from conformance.names import UsageError, unknown
from conformance.nulls.null import Null


@dataclass(frozen=True)
class Wanted:
    """What of it is wanted: everything, everywhere (`whole`), or these injections and nulls only.

    `suites` are those that the plan was restricted to; empty for all.
    """

    whole: bool = False
    injections: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()

    @property
    def any_faults(self) -> bool:
        """Whether faults are to be tried at all."""
        return bool(self.injections) or not self.nulls


def check_names(wanted: Wanted, faults: Mapping[str, Fault], nulls: Mapping[str, Null]) -> None:
    """Raise UsageError, with every fault, for injections and nulls that there are not."""
    wrong = [unknown("null", name, nulls) for name in wanted.nulls if name not in nulls]
    try:
        wanted_injections(wanted.injections, faults)
    except UsageError as error:
        wrong = [*error.faults, *wrong]
    if wrong:
        raise UsageError(*wrong)


def wanted_injections(texts: Iterable[str], faults: Mapping[str, Fault]) -> list[Injection]:
    """What these texts stand for; UsageError, with every fault, where one is no injection that can be made."""
    found: list[Injection] = []
    wrong: list[str] = []
    for text in texts:
        try:
            injection = parse_injection(text)
        except UsageError as error:
            wrong.extend(error.faults)
            continue
        if injection.fault not in faults:
            wrong.append(unknown("fault", injection.fault, faults))
        elif injection.scope not in faults[injection.fault].scopes:
            scopes = ", ".join(faults[injection.fault].scopes)
            wrong.append(f"fault {injection.fault!r} cannot be injected in scope {injection.scope!r}, only in {scopes}")
        found.append(injection)
    if wrong:
        raise UsageError(*wrong)
    return found
