"""What a null is: one correct way to compute the same, and where it is correct."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.nulls.runner import NullRunner

Applies = Callable[[Mapping[str, Any], str, str], "str | None"]
"""From a model's config.json, its role and the attention backend to None, or to why the variation is not one there."""


def everywhere(_: Mapping[str, Any], __: str, ___: str) -> str | None:
    """The variation applies to every model, role and attention backend."""
    return None


def no_change(_: NullRunner) -> None:
    """Nothing is varied in the engine itself."""


ANY_PRECISION = frozenset({"ieee", "tf32", "fused", "eager", "fp16-acc"})
ROUNDS_PROBABILITIES = frozenset({"fused", "eager", "fp16-acc"})
ROUNDS_SCORES = frozenset({"eager"})


@dataclass(frozen=True)
class Null:
    """One correct variation.

    `vary(runner)` makes a loaded runner compute so; `options` are the runner's that amount to it, and `seed` is that
    of the suite's inputs. It is correct for an attention backend that claims one of `precisions`, where
    `applies(configuration, role, attention)` answers None. `batch` names the form of batches that it makes, which not
    every attention backend takes. `quick` ones are measured in a short calibration too.
    """

    id: str  # family, then what is done: "kernel.tile-16"
    description: str  # one sentence: what is computed otherwise
    vary: Callable[[NullRunner], None] = no_change
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    precisions: frozenset[str] = ANY_PRECISION
    applies: Applies = everywhere
    batch: str = ""  # "padded", "unpadded", or either
    quick: bool = False

    @property
    def family(self) -> str:
        """What is varied: batch, order, padding, threads, kernel, rotary, linear, norm, seed ..."""
        return self.id.partition(".")[0]

    def refusal(
        self,
        configuration: Mapping[str, Any],
        role: str,
        attention: str,
        precisions: Collection[str],
        forms: Collection[str] = (),
    ) -> str | None:
        """Why it is no correct variation of this model and role on an attention backend with these claims, or None.

        `forms` are those of batches that the attention backend takes; all where there is none.
        """
        if self.batch and forms and self.batch not in forms:
            return f"{attention} takes no {self.batch} batches"
        beyond = sorted(set(precisions) - self.precisions)
        if beyond:
            return f"it rounds more than the claim {' and '.join(beyond)} allows"
        return self.applies(configuration, role, attention)
