"""The directions of known faults: how each would move what the reference answers, in widened fp64.

They are computed in padded batches, as engines run, because some faults show there alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance import checkpoint, faults
from conformance.faults.fault import NotApplicable, parse_injection
from conformance.faults.library import fault
from conformance.reference.compute import Subject, answers_of
from conformance.runner import LoadRequest, Observation, Runner
from conformance.suite import Answers

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNNER = "conformance.faults.runner:FaultyReference"
PART = "directions"

BATCH = 32

KNOWN = (
    "mask.causal-plus-one",
    "mask.causal-plus-one@middle",
    "mask.none",
    "mask.encoder-causal",
    "mask.encoder-causal@middle",
    "padding.mask-missing",
    "scale.one-percent",
    "scale.size-plus-one",
    "softcap.dropped",
    "softcap.dropped@middle",
    "window.plus-one",
    "window.minus-one",
    "window.ignored",
    "gqa.tiled-map",
    "gqa.head-zeroed@middle",
    "rope.theta-ten-percent",
    "rope.phase-bfloat16",
    "mrope.flat",
    "mrope.sections-mixed",
    "norm.eps-1e-5",
    "norm.eps-1e-3",
    "activation.gelu-tanh",
)
"""The injections, of which each model has the directions of those that apply to it: what can go wrong everywhere at
once, and what is so small that no ratio shows it."""

NO_EFFECT = 1e-10
"""A relative difference up to this is no fault's effect: fp64 in padded batches differs from fp64 alone by 1e-12."""

StartRunner = Callable[[LoadRequest], AbstractContextManager[Runner]]


def cached_part() -> str:
    """The name of the part in the store of a user's machine: other faults, or other code of theirs, have another."""
    folder = Path(str(faults.__file__)).parent
    sources = sorted(folder.glob("*.py"))
    text = "\0".join([*KNOWN, *(file.read_text("utf-8") for file in sources)])
    return f"{PART}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def applicable(subject: Subject) -> tuple[str, ...]:
    """The known faults that the subject's model can have."""
    folder, role = Path(subject.request.folder), subject.request.role
    config = checkpoint.config(folder)
    return tuple(each for each in KNOWN if fault(parse_injection(each).fault).applies(config, role) is None)


def compute_directions(
    subject: Subject,
    reference: Mapping[str, Observation],
    start: StartRunner,
    *,
    only: Sequence[str] | None = None,
    dtype: str = "float64",
) -> dict[str, NDArray[np.float32]]:
    """D = r^fault - r of each of `only` (all that apply), float32, in the numbers that the suite says with `directed`.

    `dtype` is the reference's. A fault that turns out not to apply once the model is loaded is left out.
    """
    known = Answers(lambda name: reference[name])
    right = np.asarray(subject.suite.directed(known), dtype=np.float64)
    found = {}
    for each in applicable(subject) if only is None else only:
        options: dict[str, Any] = {"batch_size": BATCH, "fault": each, "widen": dtype == "float64"}
        request = replace(
            subject.request, device="cpu", dtype=dtype, attention="eager", vision_attention="", options=options
        )
        try:
            with start(request) as runner:
                answers = answers_of(subject, runner, known)
                wrong = np.asarray(subject.suite.directed(answers), dtype=np.float64)
        except NotApplicable:
            continue
        found[each] = _direction(wrong, right)
    return found


def _direction(wrong: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float32]:
    """The difference, or zeros where it is no more than padded batches differ by."""
    moved = wrong - right
    if np.nansum(np.square(moved)) <= NO_EFFECT**2 * np.nansum(np.square(right)):
        moved = np.where(np.isnan(moved), np.nan, 0.0)
    return moved.astype(np.float32)
