"""What an engine's variants are asked and held to, whatever the role: see `suites.invariance`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from conformance import criteria
from conformance.runner import Observation
from conformance.suite import Ask, Method, observation, requirement
from suites import branches
from suites.company import InCompany, at, by_length, eights, joined, mixed

PROMPTS = 24
"""So many of the shortest are asked in several ways: they have up to 257 tokens, most of them at edges of blocks."""


def in_variant(variant: str, way: str) -> Any:
    """An observation: what the engine answers in that variant to what the observation `way` asks."""

    def ask_variant(cls: type[InCompany], ask: Ask) -> Observation:
        found: Observation = getattr(cls, way)(replace(ask, runner=ask.variant(variant)))
        return found

    return observation(reference=False, yardstick=False)(classmethod(ask_variant))  # type: ignore[type-var]


def _promise(id: str, variant: str, statement: str) -> Callable[[Method], Method]:
    return requirement(id, statement, parameters={"variant": variant})


class Invariance(InCompany):
    """What is promised of every role. Subclasses say with `some` how prompts are asked, and with `edited_some` how with
    another token at a place of each.
    """

    against_itself = True

    @staticmethod
    def edited_some(ask: Ask, places: Sequence[tuple[int, int]]) -> Observation:
        """The answers to prompts, each with another token at a place: (row, place)."""
        raise NotImplementedError

    @classmethod
    def rows(cls, reference: Any) -> list[int]:
        """The shortest prompts."""
        return mixed(by_length(cls.lengths(reference))[:PROMPTS])

    @observation(reference=False, yardstick=False)
    @classmethod
    def edited(cls, ask: Ask) -> Observation:
        """Eight at a time, with another token in the middle of each."""
        lengths = cls.lengths(ask.reference)
        places = [(row, lengths[row] // 2) for row in cls.rows(ask.reference)]
        return joined([cls.edited_some(ask, few) for few in eights(places)])

    @classmethod
    def branching(cls, ask: Ask) -> list[tuple[int, int]]:
        """Where branches leave their prompts: (row, place), at the edges of blocks."""
        lengths = cls.lengths(ask.reference)
        return branches.places(lengths, branches.blocks(ask.claim, lengths), partial(cls.can_leave, ask))

    @staticmethod
    def can_leave(ask: Ask, row: int, place: int) -> bool:
        """Whether the prompt can have another token at that very place."""
        return True

    @observation(reference=False, yardstick=False)
    @classmethod
    def trunks(cls, ask: Ask) -> Observation:
        """The prompts that branches leave, once for each branch."""
        places = cls.branching(ask)
        rows = list(dict.fromkeys(row for row, _ in places))
        return at(cls.some(ask, rows), [rows.index(row) for row, _ in places])

    @observation(reference=False, yardstick=False)
    @classmethod
    def branched(cls, ask: Ask) -> Observation:
        """The branches, eight at a time: each begins as its prompt does, up to the edge of a block."""
        return joined([cls.edited_some(ask, few) for few in eights(cls.branching(ask))])

    @classmethod
    def asked_again(cls, ask: Ask) -> Observation:
        """Eight at a time, after all were asked before."""
        cls.in_eights(ask)
        return cls.in_eights(ask)

    @classmethod
    def branched_after(cls, ask: Ask) -> Observation:
        """The branches, after the prompts that they leave."""
        cls.trunks(ask)
        return cls.branched(ask)

    in_chunks = in_variant("chunked", "in_eights")
    cached = in_variant("prefix_cache", "asked_again")
    branched_cached = in_variant("prefix_cache", "branched_after")
    compiled = in_variant("compiled", "in_eights")
    on_two = in_variant("tp2", "in_eights")
    fixed = in_variant("deterministic", "in_eights")
    fixed_again = in_variant("deterministic", "in_eights")
    fixed_alone = in_variant("deterministic", "alone")
    fixed_turned = in_variant("deterministic", "turned")
    fixed_crowd = in_variant("deterministic", "in_crowd")

    @_promise("INV-110", "chunked", "Prompts that are read in chunks MUST have the answers of those read whole.")
    def test_chunks_have_the_answers_of_whole_prompts(self) -> None:
        whole = self.usual("in_eights").effective
        self.judge(criteria.served.in_chunks(whole, self.observed.in_chunks.effective))
        self.judge_variant("chunked", "in_chunks", "read whole and in chunks")

    @_promise("INV-120", "prefix_cache", "A prompt that a cache has MUST have the answer that it had anew.")
    def test_cached_prompts_have_their_answers(self) -> None:
        self.judge_unread(self.usual("in_eights"))
        found = self.observed.cached
        self.judge_read(found, [len(ids) - 1 for ids in found.prompt_token_ids])
        self.judge_variant("prefix_cache", "cached", "read anew and from a cache")

    @_promise("INV-130", "prefix_cache", "A prompt whose beginning a cache has MUST have the answer that it had anew.")
    def test_branches_of_cached_prompts_have_their_answers(self) -> None:
        trunks, branched = self.usual("trunks"), self.usual("branched")
        self.judge_unread(branched)
        found, beside = self.observed.branched_cached, trunks.prompt_token_ids
        self.judge(criteria.served.at_edges(found, beside, blocks=self.blocks))
        self.judge_read(found, list(map(criteria.served.in_common, found.prompt_token_ids, beside)))
        known = getattr(self.reference, self.compared).prompt_token_ids
        rows = [known.index(ids) for ids in beside]
        self.judge_alike("prefix_cache", branched, found, trunks, rows, "begun anew and from a cache")

    @_promise("INV-140", "compiled", "Compiled or captured code MUST have the answers of the engine without it.")
    def test_compiled_code_has_the_answers_of_eager_code(self) -> None:
        self.judge_variant("compiled", "compiled", "computed eagerly and compiled")

    @_promise("INV-150", "tp2", "A model on two devices MUST have the answers of the same on one.")
    def test_two_devices_have_the_answers_of_one(self) -> None:
        self.judge_variant("tp2", "on_two", "computed on one device and on two")

    @_promise("INV-160", "deterministic", "In the deterministic mode, an answer MUST NOT depend on the batch.")
    def test_fixed_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_fixed("fixed_alone", "asked in eights and alone")
        self.judge_fixed("fixed_crowd", "asked in eights and 64 at once")

    @_promise("INV-170", "deterministic", "In the deterministic mode, an answer MUST NOT depend on the order.")
    def test_fixed_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_fixed("fixed_turned", "asked in eights and the same in reverse order")

    @_promise("INV-180", "deterministic", "In the deterministic mode, the same question MUST have the same answer.")
    def test_fixed_answers_repeat(self) -> None:
        self.judge_fixed("fixed_again", "asked twice in the same way")

    @property
    def blocks(self) -> tuple[int, ...]:
        """The sizes of blocks at whose edges branches leave."""
        return branches.blocks(self.bench.claim, self.lengths(self.reference))

    def usual(self, name: str) -> Any:
        """What the engine as it is answers, after everything else that will be asked of it beside its variants: a
        variant takes its place, and it would have to be loaded again.
        """
        for each in self.asked_of_the_usual():
            self.observe(each)
        return self.observe(name)

    def asked_of_the_usual(self) -> list[str]:
        """The observations that variants are held against."""
        variants = self.bench.variants
        return [
            *("in_eights", "edited"),
            *(("trunks", "branched") if "prefix_cache" in variants else ()),
            *(("alone",) if any(each.exact for each in variants.values()) else ()),
        ]

    def judge_variant(self, variant: str, name: str, what: str) -> None:
        """Judge the answers of a variant against the engine's usual ones."""
        one, edited = self.usual("in_eights"), self.usual("edited")
        self.judge_alike(variant, one, self.observe(name), edited, self.rows(self.reference), what)

    def judge_fixed(self, name: str, what: str) -> None:
        """Judge two answers of the deterministic mode against each other."""
        rows, usual, edited = self.rows(self.reference), self.usual("in_eights"), self.usual("edited")
        one: Any = self.observe("fixed")
        other = at(self.observe(name), range(len(rows)))
        if self.is_exact("deterministic"):
            self.judge(criteria.bitwise.are_identical(one, other, rounded=usual, what=what))
        else:
            self.judge_alike("deterministic", one, other, edited, rows, what)

    def judge_alike(
        self, variant: str, one: Observation, other: Observation, control: Observation, rows: Sequence[int], what: str
    ) -> None:
        """Judge answers to the same questions, within rounding or, where the variant is exact, in every bit."""
        honest = replace(self.honest(rows), alike=len(set(rows)) < len(rows))
        self.judge(
            criteria.metamorphic.agree(one, other, honest=honest, dtype=self.bench.dtype, what=what, control=control)
        )
        if self.is_exact(variant):
            self.judge(criteria.bitwise.are_identical(one, other, rounded=self.usual("alone"), what=what))

    def judge_unread(self, found: Observation) -> None:
        """Judge that nothing of what is held against a cache came from one."""
        self.judge(criteria.served.anew(found.effective))

    def judge_read(self, found: Observation, shared: Sequence[int]) -> None:
        """Judge that a cache had what the prompts share with earlier ones."""
        self.judge(criteria.served.from_cache(found.effective, shared=shared, block=max(self.blocks)))

    def is_exact(self, variant: str) -> bool:
        """Whether the profile claims equal bits of a variant."""
        return variant in self.bench.variants and self.bench.variants[variant].exact
