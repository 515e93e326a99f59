"""The constants by which the criteria judge, read from `limits.toml`, each with its provenance."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tomli

from conformance.names import did_you_mean


@dataclass(frozen=True)
class Limit:
    """One constant: its value, where that comes from, and the release that set it."""

    name: str
    value: float
    provenance: str
    since: str


@dataclass(frozen=True)
class Series:
    """A constant that is a list of numbers, in ascending or descending order."""

    name: str
    values: tuple[float, ...]
    provenance: str
    since: str


@dataclass(frozen=True)
class RatioLimits:
    """What holds for every error ratio."""

    floor_eps: Limit
    grey_zone: Limit
    pooled_float32: Limit
    allowed_relative_error_float32: Limit
    ieee_relative_error_float32: Limit


@dataclass(frozen=True)
class VectorLimits:
    """Embeddings."""

    prompts: Limit
    pooled_16bit: Limit
    single: Limit
    bucket_prompts: Limit
    bucket_16bit: Limit
    bucket_float32: Limit
    bucket_edges: Series
    spread: Limit
    unit_norm_eps_16bit: Limit
    unit_norm_eps_float32: Limit


@dataclass(frozen=True)
class ScoreLimits:
    """One scalar a prompt."""

    samples: Limit
    pooled_16bit: Limit
    single_sigma: Limit
    single_over_yardstick: Limit
    bias_sigma: Limit
    bias_shared: Limit
    spread_over_noise: Limit
    spread_relative: Limit
    probability_low: Limit
    probability_high: Limit
    saturated_share: Limit
    order_sigma: Limit


@dataclass(frozen=True)
class ClassLimits:
    """Class logits."""

    values: Limit
    independent_share: Limit
    pooled_16bit: Limit
    divergence: Limit
    divergence_samples: Limit


@dataclass(frozen=True)
class TokenLimits:
    """Logprobs and generated text."""

    prompts: Limit
    pooled_16bit: Limit
    single: Limit
    single_positions: Limit
    bucket_16bit: Limit
    bucket_float32: Limit
    bucket_positions: Limit
    bucket_prompts: Limit
    first_positions: Limit
    boundaries: Series
    boundary_reach: Limit
    top: Limit
    divergence: Limit
    divergence_samples: Limit
    tail: Limit
    gap_sigma: Limit
    margin: Limit
    margin_sigma: Limit
    self_tolerance: Limit
    mass_tolerance: Limit


@dataclass(frozen=True)
class MetamorphicLimits:
    """Two answers of one engine to one question."""

    prompts: Limit
    pooled_16bit: Limit
    single: Limit
    single_sigma: Limit
    own_values: Limit
    floor_eps_16bit: Limit
    floor_eps_float32: Limit
    moved: Limit


@dataclass(frozen=True)
class QuantileLimits:
    """A table of sqrt(F quantile): how far the ratio of two equal errors strays by chance."""

    samples: Series
    ratios: Series

    def ratio(self, independent_samples: float) -> float | None:
        """The tabulated ratio for the greatest sample count not above this one; None below the table."""
        reached = [r for n, r in zip(self.samples.values, self.ratios.values, strict=True) if n <= independent_samples]
        return reached[-1] if reached else None


@dataclass(frozen=True)
class Limits:
    """All limits, by kind of output."""

    ratio: RatioLimits
    vector: VectorLimits
    score: ScoreLimits
    classes: ClassLimits
    tokens: TokenLimits
    metamorphic: MetamorphicLimits
    quantile: QuantileLimits


_GROUPS: Mapping[str, type[Any]] = {
    "ratio": RatioLimits,
    "vector": VectorLimits,
    "score": ScoreLimits,
    "classes": ClassLimits,
    "tokens": TokenLimits,
    "metamorphic": MetamorphicLimits,
    "quantile": QuantileLimits,
}
_KEYS = ("value", "provenance", "since")


@functools.cache
def limits() -> Limits:
    """The limits that ship with the package."""
    return parse(importlib.resources.files(__package__).joinpath("limits.toml").read_text(encoding="utf-8"))


def parse(text: str) -> Limits:
    """Limits from the text of a TOML file.

    Raises ValueError that lists every fault: unknown or missing names, values of the wrong kind, no provenance.
    """
    document = tomli.loads(text)
    faults = _name_faults("group", document, _GROUPS)
    groups: dict[str, Any] = {}
    for group, kind in _GROUPS.items():
        table = document.get(group, {})
        names = [field.name for field in dataclasses.fields(kind)]
        faults += _name_faults(f"limit in [{group}]", table, names)
        entries: dict[str, Any] = {}
        for field in dataclasses.fields(kind):
            if field.name in table:
                entry, found = _entry(f"{group}.{field.name}", table[field.name], series=field.type == "Series")
                faults += found
                entries[field.name] = entry
        if entries.keys() == set(names):
            groups[group] = kind(**entries)
    if not faults:
        table = groups["quantile"]
        if len(table.samples.values) != len(table.ratios.values):
            faults.append(
                f"quantile.samples has {len(table.samples.values)} numbers and quantile.ratios "
                f"{len(table.ratios.values)}; they must pair up"
            )
    if faults:
        raise ValueError("limits: " + "; ".join(faults))
    return Limits(**groups)


def _name_faults(what: str, given: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    names = list(known)
    return [f"unknown {what}: {name!r}; {did_you_mean(name, names)}" for name in given if name not in names] + [
        f"missing {what}: {name!r}" for name in names if name not in given
    ]


def _entry(name: str, table: Any, *, series: bool) -> tuple[Limit | Series | None, list[str]]:
    if not isinstance(table, Mapping):
        return None, [f"{name} must be a table with {', '.join(_KEYS)}"]
    faults = _name_faults(f"key of {name}", table, _KEYS)
    if faults:
        return None, faults
    value, provenance, since = table["value"], table["provenance"], table["since"]
    if not (isinstance(provenance, str) and provenance.strip() and isinstance(since, str) and since.strip()):
        faults.append(f"{name} needs a provenance and the release that set it, both as text")
    if series:
        numbers = value if isinstance(value, list) else []
        if not numbers or not all(_is_number(number) for number in numbers):
            faults.append(f"{name}.value={value!r} must be a list of finite numbers")
        return (None if faults else Series(name, tuple(map(float, numbers)), provenance, since)), faults
    if not _is_number(value):
        faults.append(f"{name}.value={value!r} must be a finite number")
    return (None if faults else Limit(name, float(value), provenance, since)), faults


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
