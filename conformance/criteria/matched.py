"""Criterion G, a matched filter: does the engine's error point in the direction of a known fault?

With x the engine, r the reference and D_i = r_i^fault - r_i what the fault does to the reference, over prompts i,

    c = sum_i <x_i - r_i, D_i> / sum_i ||D_i||^2

is 1 where the engine has the fault and 0 where its error has nothing to do with it, and noise averages out: so a fault
is found that is several times smaller than rounding. (The matched filter of signal detection: G. L. Turin, IRE
Transactions on Information Theory 6, 1960.) Its standard error is the jackknife's over prompts (B. Efron, The
Jackknife, the Bootstrap and Other Resampling Plans, SIAM 1982, chapter 3), as errors within a prompt are not
independent. Honest rounding may lean in a direction too: as far as the yardstick does, the engine may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria.arrays import Float64, Mask, own, triple
from conformance.criteria.covered import UNCERTAINTY
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.judgement import Figure, Judgement
from conformance.verdict import Verdict


@dataclass(frozen=True)
class Projection:
    """An error along one direction.

    `coefficient` is c, `deviation` its standard error (infinite where one prompt alone has the direction), `share` the
    part of the squared error that the direction explains, `prompts` how many prompts the direction is worth.
    """

    coefficient: float
    deviation: float
    share: float
    prompts: float


@dataclass(frozen=True)
class Along:
    """The engine's error along the direction of one fault, and the yardstick's."""

    fault: str
    engine: Projection
    yardstick: Projection

    @property
    def limit(self) -> float:
        """The greatest coefficient that is no finding: what chance allows, beyond what the yardstick shows."""
        limit = limits().matched
        chance = limit.sigma.value * max(_deviation(self.engine), _deviation(self.yardstick))
        return max(limit.coefficient.value, chance) + abs(self.yardstick.coefficient)

    @property
    def uncertainty(self) -> float:
        """How well c is known: its standard error, or honest rounding's, and how far that leans in the direction."""
        return max(self._uncertainty(self.engine), self._uncertainty(self.yardstick))

    @property
    def is_judged(self) -> bool:
        """Whether the fault itself would stand out of honest rounding.

        That leans in weak directions, by 10 and more on some models, and each device's in its own way.
        """
        return limits().matched.sigma.value * self._uncertainty(self.yardstick) <= 1

    @property
    def is_covered(self) -> bool:
        """Whether the fault would have been seen."""
        return self.uncertainty <= limits().matched.covered.value

    def _uncertainty(self, of: Projection) -> float:
        return float(np.hypot(_deviation(of), self.yardstick.coefficient))


def _deviation(found: Projection) -> float:
    """The standard error, wider where so few prompts have the direction that it is hardly known itself."""
    limit = limits().matched
    return found.deviation * (limit.few.value if found.prompts < limit.prompts.value else 1.0)


def is_no_known_fault(
    *,
    x: ArrayLike,
    r: ArrayLike,
    e: ArrayLike,
    directions: Mapping[str, ArrayLike],
    counted: Mask | None = None,
) -> Judgement:
    """Engine x against reference r, both [n, ...], along `directions`: fault -> D, of r's shape.

    FAIL where c is above 0.5 and above 5 standard errors, each beyond the yardstick's own c, in a direction in which
    the yardstick itself stays 5 standard errors below the fault. A direction is covered where c is known to 0.1; every
    other one is reported as not covered, and UNDERPOWERED where all are.
    `counted` is a mask over the leading axes: the values that are compared.
    ValueError where r, e or a direction is at fault.
    """
    name = "matched.is_no_known_fault"
    if not directions:
        message = "no known fault applies to this model, so there is no direction to look along"
        return Judgement(name, Verdict.UNDERPOWERED, message)
    axes = ("prompts", *["values"] * (np.asarray(r).ndim - 1))
    t = triple(x, r, e, axes, counted=counted)
    if isinstance(t, str):
        return refuse(name, f"along known faults: {t}")
    compared = _flat(np.ones(t.r.shape) if counted is None else _spread(counted, t.r))
    engine, yardstick = (_flat(values - t.r, compared) for values in (t.x, t.e))
    along, without = [], []
    for fault, given in sorted(directions.items()):
        direction = own(f"the direction of {fault}", given, axes, counted=counted)
        if direction.shape != t.r.shape:
            raise ValueError(f"the direction of {fault} has shape {list(direction.shape)}, r {list(t.r.shape)}")
        flat = _flat(direction, compared)
        if flat.any():
            along.append(Along(fault, projection(engine, flat), projection(yardstick, flat)))
        else:
            without.append(fault)
    rows = {**t.rows, "directions": np.stack([np.asarray(each, np.float64) for each in directions.values()], axis=1)}
    if not all(np.isfinite(each.engine.coefficient) for each in along):
        return refuse(name, "along known faults: the engine's errors are too large to be compared", rows=rows)
    covered = [each.fault for each in along if each.is_covered]
    limit = limits().matched
    measures = [each for one in sorted(along, key=lambda one: -one.engine.share) for each in _measures(one)]
    power = Figure("known faults that could have been seen", len(covered), 1.0, "min", limit.covered.provenance)
    judgement = conclude(
        name,
        f"errors of {len(t.r)} prompts along {len(directions)} known faults",
        [*measures, Measure(power, Decides.POWER)],
        rows=rows,
    )
    if judgement.verdict is Verdict.FAIL:
        return judgement
    unseen = [f"{each.fault} (uncertainty {each.uncertainty:.2g})" for each in along if not each.is_covered]
    unseen += [f"{fault} (no effect on these prompts)" for fault in without]
    said = [f"could have been seen: {', '.join(covered)}"] if covered else []
    said += [f"not covered: {', '.join(unseen)}"] if unseen else []
    return replace(judgement, message=f"{judgement.message} Of the known faults {'; '.join(said)}.")


def projection(error: Float64, direction: Float64) -> Projection:
    """`error` along `direction`, both [n, values]; ValueError where the direction is zero throughout."""
    scale = float(np.abs(direction).max())
    if scale == 0:
        raise ValueError("the direction is zero throughout, so nothing can point in it")
    unit = np.asarray(direction, dtype=np.float64) / scale  # so that no square of a faint direction is lost
    with np.errstate(over="ignore", invalid="ignore"):
        products = (error * unit).sum(axis=1)
        squares = np.square(unit).sum(axis=1)
        total, size = float(products.sum()), float(squares.sum())
        energy = float(np.square(error).sum())
        share = total / energy * (total / size) if energy > 0 else 0.0
        return Projection(
            coefficient=total / size / scale,
            deviation=_jackknife(products, squares) / scale,
            share=share,
            prompts=size * (size / float(np.square(squares).sum())),
        )


def _jackknife(products: Float64, squares: Float64) -> float:
    """The standard error of sum(products) / sum(squares), from leaving out one prompt at a time."""
    count = len(products)
    left = squares.sum() - squares
    if count < 2 or not (left > squares.sum() * np.finfo(np.float64).eps).all():
        return float("inf")
    without = (products.sum() - products) / left
    return float(np.sqrt((count - 1) / count * np.square(without - without.mean()).sum()))


def _measures(along: Along) -> list[Measure]:
    """c with its limit, where it has one, and its uncertainty: a fault is covered where that is at most 0.1."""
    limit = limits().matched
    found = along.engine
    deviation = Measure(Figure(f"{UNCERTAINTY}{along.fault}", along.uncertainty))
    if not along.is_judged:
        return [Measure(Figure(f"c of {along.fault}", found.coefficient)), deviation]
    provenance = f"{limit.coefficient.provenance}; {limit.sigma.provenance}"
    where = f"+- {found.deviation:.2g}, which explains {found.share:.0%} of the squared error"
    figure = Figure(f"c of {along.fault}", found.coefficient, along.limit, "max", provenance)
    return [Measure(figure, Decides.EXACT, where), deviation]


def _spread(counted: Mask, values: Float64) -> Float64:
    mask = counted.reshape(counted.shape + (1,) * (values.ndim - counted.ndim))
    return np.broadcast_to(mask, values.shape).astype(np.float64)


def _flat(values: Float64, compared: Float64 | None = None) -> Float64:
    """[n, all other axes], with zeros where nothing is compared."""
    flat = values.reshape(len(values), -1)
    return flat if compared is None else np.where(compared > 0, flat, 0.0)
