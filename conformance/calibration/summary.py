"""From samples to limits: the p99.9 of each entry, the value that follows, and whether it holds for those left out."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.calibration.sample import Sample
from conformance.criteria.limit import ROOM, Limit, Measured


@dataclass(frozen=True)
class Run:
    """A calibration as limits.toml tells of it: class of device, day (ISO), command, limits that it has samples of."""

    device: str
    day: str
    command: str
    entries: frozenset[str]


@dataclass(frozen=True)
class LeftOut:
    """What would be proposed without the samples of one attention backend, and whether that backend is within it."""

    backend: str
    samples: int
    proposed: float
    p999: float
    worst: float

    @property
    def holds(self) -> bool:
        """Whether no figure of the backend that was left out is beyond the limit that the others propose."""
        return self.worst <= self.proposed


@dataclass(frozen=True)
class Entry:
    """What the samples of one limit come to. `devices` are by class of device; `left_out` by attention backend."""

    limit: Limit
    samples: int
    p999: float
    worst: float
    devices: Mapping[str, tuple[float, float, int, tuple[str, ...]]]  # p99.9, worst, samples, attention backends
    proposed: float
    left_out: tuple[LeftOut, ...]

    @property
    def margin(self) -> float:
        """How much of today's limit the worst null uses: above 1 it is accused."""
        return self.worst / self.limit.value


def summarise(samples: Sequence[Sample], limits: Mapping[str, Limit]) -> list[Entry]:
    """One entry for each limit that has samples, in the order of the limits."""
    found = []
    for name, limit in limits.items():
        own = [sample for sample in samples if sample.entry == name]
        if not own or limit.floor is None:
            continue
        values = [sample.value for sample in own]
        devices = {}
        for device in sorted({sample.question.device for sample in own}):
            there = [sample for sample in own if sample.question.device == device]
            numbers = [sample.value for sample in there]
            attentions = tuple(sorted({sample.question.attention for sample in there}))
            devices[device] = (p999(numbers), max(numbers), len(numbers), attentions)
        kept = [each.p999 for each in limit.measured if each.device not in devices]
        backends = sorted({sample.question.backend for sample in own})
        left_out = []
        for backend in backends if len(backends) > 1 else []:
            theirs = [sample.value for sample in own if sample.question.backend == backend]
            others = [sample.value for sample in own if sample.question.backend != backend]
            value = proposal(limit, [p999(others)])
            left_out.append(LeftOut(backend, len(theirs), value, p999(theirs), max(theirs)))
        proposed = proposal(limit, [*(numbers[0] for numbers in devices.values()), *kept])
        found.append(Entry(limit, len(values), p999(values), max(values), devices, proposed, tuple(left_out)))
    return found


def p999(values: Sequence[float]) -> float:
    """The 99.9th percentile, the next value above it rather than one between two: of fewer than 1000 the greatest."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), 0.999, method="higher"))


def proposal(limit: Limit, measured: Iterable[float]) -> float:
    """The limit that follows: 1.1 times the greatest p99.9, three decimals, or the floor where that is more."""
    assert limit.floor is not None
    return max(limit.floor, math.floor(ROOM * max(measured) * 1000) / 1000)


def measurements(entry: Entry, runs: Sequence[Run]) -> list[Measured]:
    """What limits.toml keeps of the entry, by class of device, with the last day and every command that measured it.

    Numbers are rounded up, so that the file never claims less than what was measured.
    """
    found = []
    for device, (of_p999, worst, count, attentions) in entry.devices.items():
        behind = [run for run in runs if run.device == device and entry.limit.name in run.entries]
        when = datetime.date.fromisoformat(max(run.day for run in behind))
        command = "; ".join(dict.fromkeys(run.command for run in behind))
        found.append(Measured(device, _up(of_p999), _up(worst), count, attentions, when, command))
    return found


def thinner(measured: Mapping[str, Sequence[Measured]], known: Mapping[str, Limit]) -> list[str]:
    """Where fewer samples take the place of more on the same class of device: "score.single on cpu, 92 to 1"."""
    return [
        f"{name} on {new.device}, {old.samples} to {new.samples}"
        for name, every in measured.items()
        for new in every
        for old in known[name].measured
        if old.device == new.device and new.samples < old.samples
    ]


def _up(value: float) -> float:
    return math.ceil(value * 10_000) / 10_000
