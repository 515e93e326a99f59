"""What a criterion answers: a verdict with the figures and limits that led to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Figure:
    """One measured number beside the limit it was held against.

    `limit` is None for a number that is only reported. `bound` says which side of the limit is right.
    `provenance` says where the limit comes from (measured on what, or the source of the rule). `limit_name` is the
    entry of limits.toml that the limit follows from, where there is one; `standing` is what that is on the device of
    the run: "measured", "provisional" where nobody has measured such a device, or empty for a rule.
    """

    name: str
    value: float
    limit: float | None = None
    bound: Literal["max", "min"] = "max"
    provenance: str = ""
    limit_name: str = ""
    standing: Literal["measured", "provisional", ""] = ""

    @property
    def holds(self) -> bool:
        """Whether the value is within its limit; NaN never is."""
        if self.limit is None:
            return True
        return self.value <= self.limit if self.bound == "max" else self.value >= self.limit


@dataclass(frozen=True)
class Judgement:
    """The verdict of one criterion on one kind of output: PASS, FAIL or UNDERPOWERED, never anything else.

    `message` is one to three sentences a stranger can read: what was compared, on which inputs, how far off,
    against which limit. `rows` holds the arrays that were judged (x: engine, r: reference, e: yardstick; the same
    leading axis), so that a failure can be judged again without the device; it is kept out of comparisons.
    `stage` is "grey" for a failure just beyond its limits, which fresh prompts decide, and "fresh" for what was judged
    on those.
    """

    criterion: str
    verdict: Verdict
    message: str
    figures: tuple[Figure, ...] = ()
    rows: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False, repr=False)
    stage: Literal["", "grey", "fresh"] = ""


def decisive(judgements: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """Those that count: a grey one does not where fresh prompts were asked."""
    if not any(judgement.stage == "fresh" for judgement in judgements):
        return tuple(judgements)
    return tuple(judgement for judgement in judgements if judgement.stage != "grey")


def accusing(judgements: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """Those that FAIL and stand: a grey one does not where all that was judged on fresh prompts is a PASS."""
    fresh = [judgement.verdict is Verdict.PASS for judgement in judgements if judgement.stage == "fresh"]
    cleared = bool(fresh) and all(fresh)
    return tuple(one for one in judgements if one.verdict is Verdict.FAIL and not (cleared and one.stage == "grey"))
