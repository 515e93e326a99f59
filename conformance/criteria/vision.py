"""What a vision tower sees and hands on: grids, features, and answers that follow the order of pictures and frames."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria.arrays import Float64, triple
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.criteria.measures import pooled_measures, single_measure
from conformance.criteria.ratio import Errors, errors, pick
from conformance.judgement import Figure, Judgement
from conformance.runner import Generations, Grid, NotSupported, TokenIds

_AXES = ("patches", "width")


def same_grids(observed: Generations, reference: Generations) -> Judgement:
    """Every prompt's pictures were seen in the reference's grids: temporal patches, rows and columns of patches.

    UNDERPOWERED where the reference saw no picture, or all in one grid. Raises NotSupported where the engine tells
    nobody what it saw.
    """
    name = "vision.same_grids"
    if observed.effective.evidence == "undisclosed" and not any(observed.grids):
        raise NotSupported("the engine tells nobody in which grids it sees pictures")
    faults = [
        f"prompt {i}: the engine saw {_written(mine)}, the reference {_written(theirs)}"
        for i, (mine, theirs) in enumerate(zip_longest(observed.grids, reference.grids))
        if mine != theirs
    ]
    known = [grid for grids in reference.grids for grid in grids]
    measures = [
        Measure(Figure("prompts with other grids", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("pictures", len(known))),
        Measure(Figure("different grids", len(set(known)), 2.0, "min", "one grid cannot be mistaken"), Decides.POWER),
    ]
    return conclude(name, f"grids of the pictures of {len(reference.grids)} prompts", measures, rows={}, faults=faults)


def features_agree(
    *, x: ArrayLike, r: ArrayLike, e: ArrayLike, dtype: str, grids: Sequence[Grid], precision: str = "ieee"
) -> Judgement:
    """The tower's features x against reference r, all [patches, width], allowed the error of yardstick e.

    The merged patches of all pictures lie one after another, `grids` are the pictures'. Judged: the ratio pooled and
    of the worst picture; in float32 also the relative error, where `precision` claims `ieee`. UNDERPOWERED with fewer
    than 16 pictures. ValueError where r, e, `grids`, `dtype` or `precision` are at fault.
    """
    name = "vision.features_agree"
    limit = limits().vector
    t = triple(x, r, e, _AXES)
    if isinstance(t, str):
        return refuse(name, f"features: {t}")
    found = errors(t, dtype)
    pictures = _by_picture(found, _starts(grids, len(t.r)))
    worst_patch = float((found.engine / np.maximum(found.allowed, np.finfo(np.float64).tiny)).max())
    measures = [
        *pooled_measures(pictures, pick(dtype, limit.pooled_16bit, limits().ratio.pooled_float32), precision),
        single_measure(pictures, limit.single),
        Measure(Figure("worst merged patch's ratio", worst_patch)),
        Measure(Figure("pictures", len(grids), limit.prompts.value, "min", limit.prompts.provenance), Decides.POWER),
    ]
    compared = f"features of {len(grids)} pictures, {t.r.shape[0]} merged patches of {t.r.shape[1]} numbers, {dtype}"
    return conclude(name, compared, measures, rows={**t.rows, "patches": np.diff(_starts(grids, len(t.r)))})


def answers_follow_order(*, x: Generations, r: Generations, pairs: Sequence[tuple[int, int]], what: str) -> Judgement:
    """Of two prompts that differ in the order of their `what`, each has its own reference's answer, not the other's.

    Judged by how many tokens each answer agrees with either reference from the start. UNDERPOWERED where the
    reference's answers to no pair differ.
    """
    name = "vision.answers_follow_order"
    if len(x.token_ids) != len(r.token_ids):
        return refuse(name, f"{len(x.token_ids)} answers, but the reference has {len(r.token_ids)}")
    telling = [(i, j) for i, j in pairs if r.token_ids[i] != r.token_ids[j]]
    faults = []
    for i, j in telling:
        for mine, other in ((i, j), (j, i)):
            own = _agreeing(x.token_ids[mine], r.token_ids[mine])
            others = _agreeing(x.token_ids[mine], r.token_ids[other])
            if own <= others:
                faults.append(
                    f"prompt {mine} has {own} tokens of its own answer and {others} of that of prompt {other}, whose "
                    f"{what} stand in another order"
                )
    measures = [
        Measure(Figure("answers that belong to another order", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("pairs that can tell", len(telling), 1.0, "min", "no pair, no order"), Decides.POWER),
    ]
    return conclude(name, f"answers to {len(pairs)} pairs in another order of {what}", measures, rows={}, faults=faults)


def _agreeing(ids: TokenIds, reference: TokenIds) -> int:
    return next((at for at, (a, b) in enumerate(zip_longest(ids, reference)) if a != b), len(ids))


def _starts(grids: Sequence[Grid], patches: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where each picture's merged patches begin, and the end; the merge size follows from the number of patches."""
    whole = np.array([prod(grid) for grid in grids], dtype=np.int64)
    merged, left = divmod(int(whole.sum()), patches)
    if left or (whole % max(1, merged)).any():
        raise ValueError(f"{patches} features for pictures of {whole.tolist()} patches; they do not divide")
    return np.concatenate([[0], np.cumsum(whole // merged)])


def _by_picture(found: Errors, starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Errors:
    def total(norms: Float64) -> Float64:
        with np.errstate(over="ignore"):
            sums: Float64 = np.sqrt(np.add.reduceat(np.square(norms), starts[:-1]))
        return sums

    return Errors(found.dtype, total(found.engine), total(found.allowed), total(found.reference))


def _written(grids: Sequence[Grid] | None) -> str:
    return " and ".join("x".join(map(str, grid)) for grid in grids or ()) or "no picture"
