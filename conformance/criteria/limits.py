"""The constants by which the criteria judge, read from `limits.toml`, each with its provenance.

A constant is a rule (arithmetic, a sample size) or, with a `floor`, rests on measurements of correct variations. Those
are data too, one for each class of device: on a class that nobody has measured the constant is `provisional`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli

from conformance.criteria.limit import Limit, Series, name_faults, read_entry

__all__ = ["Limit", "Limits", "LimitsError", "Series", "every", "limits", "loosened", "named", "parse"]


class LimitsError(ValueError):
    """A limits file that cannot be judged by; `faults` holds every fault, one sentence each."""

    def __init__(self, *faults: str) -> None:
        super().__init__("limits: " + "; ".join(faults))
        self.faults = faults


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
class AttentionLimits:
    """Single calls of attention kernels."""

    pooled_16bit: Limit
    pooled_float32: Limit
    pooled_tf32: Limit
    tile_16bit: Limit
    tile_float32: Limit
    row_16bit: Limit
    row_float32: Limit
    local_tf32: Limit
    gain_sigma: Limit
    gain_floor_eps_16bit: Limit
    gain_floor_eps_float32: Limit
    gain_floor_eps_tf32: Limit
    sum_eps_16bit: Limit
    sum_eps_float32: Limit
    sum_eps_tf32: Limit
    sum_eps_fp16_acc: Limit
    chosen_eps: Limit


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
class MatchedLimits:
    """Errors along the directions of known faults."""

    coefficient: Limit
    sigma: Limit
    covered: Limit
    prompts: Limit
    few: Limit


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
    attention: AttentionLimits
    metamorphic: MetamorphicLimits
    matched: MatchedLimits
    quantile: QuantileLimits


_GROUPS: Mapping[str, type[Any]] = {
    "ratio": RatioLimits,
    "vector": VectorLimits,
    "score": ScoreLimits,
    "classes": ClassLimits,
    "tokens": TokenLimits,
    "attention": AttentionLimits,
    "metamorphic": MetamorphicLimits,
    "matched": MatchedLimits,
    "quantile": QuantileLimits,
}


@functools.cache
def limits() -> Limits:
    """The limits that ship with the package."""
    return parse(importlib.resources.files(__package__).joinpath("limits.toml").read_text(encoding="utf-8"))


def named(name: str) -> Limit:
    """The shipped limit that figures call so ("vector.pooled_16bit"); KeyError for any other name."""
    group, _, field = name.partition(".")
    found = getattr(getattr(limits(), group, None), field, None)
    if not isinstance(found, Limit):
        raise KeyError(name)
    return found


def every(given: Limits) -> dict[str, Limit]:
    """All limits that are one number, by name, in the order of the file's groups."""
    groups = (vars(group).values() for group in vars(given).values())
    return {limit.name: limit for group in groups for limit in group if isinstance(limit, Limit)}


def loosened(given: Mapping[str, Limit], shipped: Mapping[str, Limit]) -> list[str]:
    """How `given` gets round the measurements, a sentence each: what rests on them may not become a rule, nor may the
    floor be raised, or any value would do.
    """
    faults = []
    for name, limit in shipped.items():
        floor = given[name].floor
        if limit.floor is None:
            continue
        if floor is None:
            faults.append(
                f"{name} rests on measurements, so it needs a floor: at most {limit.floor:g}, that of the shipped limit"
            )
        elif floor > limit.floor:
            faults.append(
                f"{name}.floor={floor:g} is looser than that of the shipped limit, {limit.floor:g}; leave it, and let "
                "`calibrate` measure what is wider"
            )
    return faults


def parse(text: str) -> Limits:
    """Limits from the text of a TOML file.

    Raises LimitsError with every fault: unknown or missing names, values of the wrong kind, no provenance, values that
    are looser than what was measured, or so tight that correct variations break them.
    """
    try:
        document = tomli.loads(text)
    except ValueError as error:  # tomli's own, or Python's of a number with too many digits
        raise LimitsError(f"not TOML: {error}") from None
    except RecursionError:
        raise LimitsError("lists or tables are nested too deeply") from None
    faults = name_faults("group", document, _GROUPS)
    groups: dict[str, Any] = {}
    for group, kind in _GROUPS.items():
        table = document.get(group, {})
        names = [field.name for field in dataclasses.fields(kind)]
        wrong = name_faults(f"limit in [{group}]", table, names)
        faults += wrong if group in document else []  # a missing group is one fault
        if not isinstance(table, Mapping):
            continue
        entries: dict[str, Any] = {}
        for field in dataclasses.fields(kind):
            if field.name in table:
                entry, found = read_entry(f"{group}.{field.name}", table[field.name], series=field.type == "Series")
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
        raise LimitsError(*faults)
    return Limits(**groups)
