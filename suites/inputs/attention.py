"""Attention calls: shapes around the edges of blocks, pages and tiles, and numbers that show what kernels get wrong.

What is asked of a kernel is what its profile claims: head sizes, batch forms, page sizes, bidirectional attention. A
head size that is not claimed is replaced by one that is, so that the rest of the shape stays in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from conformance.runner import AttentionCall
from suites.inputs.attention_forms import LENGTHS, SIZES, Form, Shapes, forms, on_pages, windowed_on_pages
from suites.inputs.attention_numbers import Pointed, made, pointed

if TYPE_CHECKING:
    from conformance.profile import Claim

__all__ = ["LENGTHS", "SIZES", "AttentionInputs", "Form", "Pointed", "inputs"]


@dataclass(frozen=True)
class AttentionInputs:
    """Forms by what they show. Calls are made of them for a dtype and a claim (None: anything is claimed)."""

    seed: int
    square: tuple[Form, ...]
    padded: tuple[Form, ...]
    windowed: tuple[Form, ...]
    ordinary: tuple[Form, ...]
    hard: tuple[Form, ...]
    ragged: tuple[Form, ...]
    sliding: tuple[Form, ...]
    capped: tuple[Form, ...]
    scaled: tuple[Form, ...]
    repeated: tuple[Form, ...]
    masked: tuple[Form, ...]
    repeats: int
    factor: int = 1  # by which the batches of calls with numbers are enlarged

    def visible(self, forms: Sequence[Form], dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """All scores equal, values one-hot: what is not zero was seen."""
        return made(self._suited(forms, claim), "visible", dtype, self.seed)

    def numeric(self, forms: Sequence[Form], dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """Numbers as the forms say."""
        return made(self._suited(forms, claim), "numeric", dtype, self.seed)

    def ones(self, dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """Values of one; those of padding are seven."""
        return made(self._suited((*self.square, *self.padded), claim), "ones", dtype, self.seed)

    def head_numbers(self, dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """Values that are their key head's number, from 1."""
        return made(self._suited(self.square, claim), "heads", dtype, self.seed)

    def enlarged(self, factor: int) -> AttentionInputs:
        """The same forms, those with numbers in batches that are so many times as large."""

        return replace(
            self,
            ordinary=_larger(self.ordinary, factor),
            hard=_larger(self.hard, factor),
            ragged=_larger(self.ragged, factor),
            sliding=_larger(self.sliding, factor),
            capped=_larger(self.capped, factor),
            scaled=_larger(self.scaled, factor),
            repeated=_larger(self.repeated, factor),
            factor=factor,
        )

    def paged(self, claim: Claim | None) -> tuple[Form, ...]:
        """Forms in pages of every size that is claimed; none where no sizes are."""
        return tuple(form for size in _page_sizes(claim) for form in _larger(on_pages(size), self.factor))

    def paged_sliding(self, claim: Claim | None) -> tuple[Form, ...]:
        """Forms with windows, in pages of every size that is claimed."""
        return tuple(form for size in _page_sizes(claim) for form in _larger(windowed_on_pages(size), self.factor))

    def denormal(self, dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """One denormal value everywhere, all scores equal, a power of two of keys."""
        forms = (Form((4, 2), 64, 64, 64, causal=False), Form((4, 2), 1, 128, 128, batch=2))
        return made(self._suited(forms, claim), "denormal", dtype, self.seed)

    def pointed(self, dtype: str, claim: Claim | None) -> Pointed:
        """Queries that each point at one key, whose values say where it lies."""
        return pointed(self._suited((*self.square, *self.padded), claim), dtype, self.seed)

    def visible_on_pages(self, dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """All scores equal and values one-hot, in pages of every size that is claimed, with windows where they are."""
        windowed = self.paged_sliding(claim) if claim is not None and claim.window else ()
        return self.visible((*self.paged(claim), *windowed), dtype, claim)

    def pointed_on_pages(self, dtype: str, claim: Claim | None) -> Pointed:
        """The same in pages of every size that is claimed."""
        return pointed(self._suited(self.paged(claim), claim), dtype, self.seed)

    @staticmethod
    def _suited(forms: Sequence[Form], claim: Claim | None) -> tuple[Form, ...]:
        return tuple(dict.fromkeys(found for form in forms if (found := form.suits(claim)) is not None))


@cache
def inputs(seed: int = 0, shapes: Shapes = "quick") -> AttentionInputs:
    """The forms; "full" crosses head sizes, groups and lengths, "quick" takes each of them at least once."""
    found: dict[str, Any] = dict(forms(seed, shapes))
    return AttentionInputs(seed=seed, repeats=24 if shapes == "quick" else 300, **found)


def _page_sizes(claim: Claim | None) -> tuple[int, ...]:
    return () if claim is None or claim.page_sizes is None else claim.page_sizes


def _larger(forms: Sequence[Form], factor: int) -> tuple[Form, ...]:
    return tuple(
        replace(form, batch=form.batch * factor, lengths=form.lengths and form.lengths * factor) for form in forms
    )
