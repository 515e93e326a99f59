"""`when`: the condition of a quirk or a claim, answered with yes, no, or not known yet.

A condition is a table; all its keys must hold. Text is matched with shell patterns (`*`, `?`, `[...]`), a list holds
where any of its patterns does, and a leading `!` turns a pattern round. What only the machine can tell (device,
memory, versions, instruction set) stays unknown until its facts are there.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

TEXT_KEYS = ("suite", "model", "role", "engine", "attention", "vision", "dtype")
"""Keys that the plan itself decides."""

FACT_KEYS = ("device", "memory_gib", "capability", "devices", "isa", "versions")
"""Keys that only the facts of a machine decide."""

BOUNDED = ("memory_gib", "capability", "devices")
"""Those of them that are numbers, held against bounds."""

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_BOUND = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(-?\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Subject:
    """What a condition is held against. In the fact fields None means that it is not known yet.

    `vision` is None where the target has no vision attention of its own. `versions` maps a distribution to its
    version, or to None where it is known not to be installed; a distribution it lacks is unknown. `capability` is the
    compute capability of devices that have one, 9.0 and its like; `devices` is how many devices there are.
    """

    suite: str = ""
    model: str = ""
    role: str = ""
    engine: str = ""
    attention: str = ""
    vision: str | None = None
    dtype: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    memory_gib: float | None = None
    capability: float | None = None
    devices: int | None = None
    isa: frozenset[str] | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)


def evaluate(when: Mapping[str, Any], subject: Subject) -> bool | None:
    """True or False where the condition is decided, None where it waits for facts. An empty condition holds."""
    return conjunction(_term(key, wanted, subject) for key, wanted in when.items())


def conjunction(terms: Iterable[bool | None]) -> bool | None:
    """Three-valued `and`: one False decides; without one, an unknown leaves it open."""
    unknown = False
    for term in terms:
        if term is False:
            return False
        unknown = unknown or term is None
    return None if unknown else True


def faults(when: Mapping[str, Any]) -> list[str]:
    """What is wrong with the values of a condition whose keys and types are right, one sentence each."""
    found = []
    for key in BOUNDED:
        if key in when and not is_bounds(when[key]):
            found.append(f'{key}: {when[key]!r} is no bound; write e.g. "<20" or ">=16,<48"')
    for name, specifier in when.get("versions", {}).items():
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(specifier)
        except InvalidSpecifier:
            found.append(f'versions.{name}: {specifier!r} is no version specifier; write e.g. ">=2.13,<3"')
    return found


def is_bounds(text: str) -> bool:
    """Whether `text` is a comma-separated list of bounds such as ">=16,<48"."""
    return all(_BOUND.fullmatch(part) for part in text.split(","))


def within(bounds: str, value: float) -> bool:
    """Whether `value` meets all of `bounds`, e.g. ">=16,<48". Raises ValueError for anything that is no bound."""
    holds = True
    for part in bounds.split(","):
        match = _BOUND.fullmatch(part)
        if match is None:
            raise ValueError(f"{bounds!r} is no bound such as '<20' or '>=16,<48'")
        holds = holds and _COMPARE[match[1]](value, float(match[2]))
    return holds


def matches(patterns: str | Sequence[str], text: str) -> bool:
    """Whether any plain pattern, and no pattern with a leading `!`, matches; only `!` patterns need no other."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    refused = [pattern[1:] for pattern in wanted if pattern.startswith("!")]
    welcome = [pattern for pattern in wanted if not pattern.startswith("!")]
    if any(fnmatchcase(text, pattern) for pattern in refused):
        return False
    return not welcome or any(fnmatchcase(text, pattern) for pattern in welcome)


def _term(key: str, wanted: Any, subject: Subject) -> bool | None:
    if key == "versions":
        return conjunction(_version(name, specifier, subject.versions) for name, specifier in wanted.items())
    if key == "parameters":
        return all(_parameter(subject.parameters.get(name), value) for name, value in wanted.items())
    if key in BOUNDED:
        number = getattr(subject, key)
        return None if number is None else within(wanted, number)
    if key == "isa":
        return None if subject.isa is None else _any_of(wanted, subject.isa)
    if key == "device":
        return None if subject.device is None else matches(wanted, subject.device)
    if key == "vision":
        return subject.vision is not None and matches(wanted, subject.vision)
    if key in TEXT_KEYS:
        return matches(wanted, getattr(subject, key))
    raise KeyError(f"{key!r} is no key of `when`")


def _any_of(patterns: str | Sequence[str], present: frozenset[str]) -> bool:
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    refused = [pattern[1:] for pattern in wanted if pattern.startswith("!")]
    welcome = [pattern for pattern in wanted if not pattern.startswith("!")]
    if any(fnmatchcase(flag, pattern) for pattern in refused for flag in present):
        return False
    return not welcome or any(fnmatchcase(flag, pattern) for pattern in welcome for flag in present)


def _version(name: str, specifier: str, versions: Mapping[str, str | None]) -> bool | None:
    if name not in versions:
        return None
    installed = versions[name]
    if installed is None:
        return False
    from packaging.specifiers import SpecifierSet

    # Nightly builds are what backends are developed on, so a pre-release counts as the version it leads to.
    return SpecifierSet(specifier).contains(installed, prereleases=True)


def _parameter(actual: Any, wanted: Any) -> bool:
    if actual is None:
        return False
    if isinstance(wanted, str) and is_bounds(wanted):
        return isinstance(actual, (int, float)) and not isinstance(actual, bool) and within(wanted, actual)
    if isinstance(wanted, str):
        return isinstance(actual, str) and matches(wanted, actual)
    return type(actual) is type(wanted) and bool(actual == wanted)
