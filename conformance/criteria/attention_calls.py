"""What the criteria of kernel calls share: a call in words, the gate before any number, the arrays that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.criteria.arrays import Float64
from conformance.criteria.attention_math import counted
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.judgement import Figure, Judgement
from conformance.runner import AttentionCall, AttentionOutputs

_NAMED = 3


def words(call: AttentionCall) -> str:
    """The shape of a call: what a reader needs to make it again."""
    batch, heads, queries, size = call.query.shape
    said = [
        f"batch {batch}, {heads} heads on {call.key.shape[1]}",
        f"{queries} queries of {call.key.shape[2]} keys, size {size}",
        "causal" if call.causal else "bidirectional",
    ]
    for name, value in (("window", call.window), ("softcap", call.softcap), ("scale", call.scale)):
        if value is not None:
            said.append(f"{name} {value:g}")
    if call.lengths is not None:
        some = ", ".join(map(str, call.lengths[:6])) + (" ..." if len(call.lengths) > 6 else "")
        said.append(f"lengths {some}")
    if call.page_size is not None:
        said.append(f"pages of {call.page_size}")
    return ", ".join(said)


def are_answered(calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, repeats: int = 1) -> Judgement:
    """Each call has an answer of its query's shape, dtype and device, and no input was written to."""
    name = "attention.are_answered"
    faults = faults_of(calls, outputs, repeats)
    measures = [
        Measure(Figure("answers at fault", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("calls", len(calls), 1.0, "min", "none made, none checked"), Decides.POWER),
    ]
    return conclude(name, f"{len(calls)} attention calls", measures, rows=_rows_of_first(calls, outputs), faults=faults)


def are_finite(calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, repeats: int = 1) -> Judgement:
    """Every number of every answer is finite, but for those of padding."""
    name = "attention.are_finite"
    if refused := gate(name, calls, outputs, repeats):
        return refused
    faults: list[str] = []
    rows: dict[str, NDArray[Any]] = {}
    for call, answers in zip(calls, grouped(outputs, repeats), strict=True):
        bad = [(i, n) for i, x in enumerate(answers) if (n := int((~np.isfinite(x[real(call)])).sum()))]
        if bad:
            index, count = bad[0]
            where = f", in {len(bad)} of {repeats} repeats" if repeats > 1 else ""
            faults.append(f"{count} numbers are NaN or infinite{where} ({words(call)})")
            rows = rows or kept(call, answers[index])
    measures = [
        Measure(Figure("calls with numbers that are not finite", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("calls", len(calls), 1.0, "min", "none made, none checked"), Decides.POWER),
    ]
    return conclude(name, f"answers to {len(calls)} attention calls", measures, rows=rows, faults=faults)


def gate(name: str, calls: Sequence[AttentionCall], outputs: AttentionOutputs, repeats: int = 1) -> Judgement | None:
    """A refusal where an answer is at fault before its numbers are; None where they can be looked at."""
    faults = faults_of(calls, outputs, repeats)
    if not faults:
        return None
    rest = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
    return refuse(name, f"attention calls: {'; '.join(faults[:_NAMED])}{rest}.", rows=_rows_of_first(calls, outputs))


def faults_of(calls: Sequence[AttentionCall], outputs: AttentionOutputs, repeats: int = 1) -> list[str]:
    """Every sentence about an answer, with its call in words."""
    wanted = len(calls) * repeats
    if not len(outputs.values) == len(outputs.faults) == wanted:
        return [
            f"{len(outputs.values)} answers and {len(outputs.faults)} accounts of them, but {wanted} calls were made"
        ]
    found = []
    for index, (value, said) in enumerate(zip(outputs.values, outputs.faults, strict=True)):
        call = calls[index // repeats]
        said = said or (() if value.shape == call.query.shape else (f"shape is {list(value.shape)}",))
        found += [f"{each} ({words(call)})" for each in said]
    return list(dict.fromkeys(found))


def grouped(outputs: AttentionOutputs, repeats: int) -> list[Sequence[Float64]]:
    """The answers of each call, as float64."""
    values = [np.asarray(value, dtype=np.float64) for value in outputs.values]
    return [values[start : start + repeats] for start in range(0, len(values), repeats)]


def real(call: AttentionCall) -> NDArray[np.bool_]:
    """What of an answer [batch, heads, queries, size] is no padding's."""
    return np.broadcast_to(counted(call)[:, None, :, None], call.query.shape)


def kept(
    call: AttentionCall, x: Float64, r: Float64 | None = None, e: Float64 | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of a failing call, as a judgement keeps them; the leading axis is the batch."""
    arrays: dict[str, Any] = {"query": call.query, "key": call.key, "value": call.value, "x": x, "r": r, "e": e}
    if call.lengths is not None:
        arrays["lengths"] = np.array(call.lengths, dtype=np.int64)
    # Once for each row: the arrays share their leading axis.
    for name in ("causal", "scale", "window", "softcap", "page_size"):
        if (argument := getattr(call, name)) is not None:
            arrays[name] = np.full(len(call.query), argument)
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def _rows_of_first(calls: Sequence[AttentionCall], outputs: AttentionOutputs) -> dict[str, NDArray[Any]]:
    """The arrays of the first call that is at fault, its answer where that has a batch."""
    repeats = len(outputs.faults) // len(calls) if calls else 0
    if not repeats or len(outputs.values) != len(outputs.faults):
        return {}
    for index, (value, said) in enumerate(zip(outputs.values, outputs.faults, strict=True)):
        call = calls[min(index // repeats, len(calls) - 1)]
        if said or value.shape != call.query.shape:
            found = kept(call, np.asarray(value))
            return found if value.shape[:1] == call.query.shape[:1] else {k: a for k, a in found.items() if k != "x"}
    return {}
