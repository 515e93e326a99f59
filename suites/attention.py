"""Attention: one kernel, given queries, keys and values, and nothing of a model around it.

The promises hold for the attention function that the layers of a model with the role `attention` call, and for any
other kernel that answers the same calls. Which keys a query sees, which head it reads and which page is shown exactly,
by values chosen for it; the numbers are held against exact attention, within the rounding of the claimed class. A
kernel that reads its keys from pages is asked in every page size that its profile claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import AttentionCall, AttentionOutputs
from conformance.suite import Ask, ConformanceSuite, observation, requirement
from suites.inputs import attention

__all__ = ["Attention", "load_tests"]


def _asked(calls: Callable[[Ask], Sequence[AttentionCall]]) -> Any:
    """An observation: what the kernel answers to these calls. Nothing is compared but in the suite itself."""

    def ask_kernel(ask: Ask) -> AttentionOutputs:
        return ask.runner.attention(calls(ask))

    return observation(reference=False, yardstick=False)(staticmethod(ask_kernel))


def _visible(forms: str) -> Any:
    """An observation: the calls of these forms, with values that show which keys were seen."""
    return _asked(lambda ask: ask.inputs.visible(getattr(ask.inputs, forms), ask.runner.request.dtype, ask.claim))


def _numeric(forms: str) -> Any:
    """An observation: the calls of these forms, with their numbers."""
    return _asked(lambda ask: ask.inputs.numeric(getattr(ask.inputs, forms), ask.runner.request.dtype, ask.claim))


class Attention(ConformanceSuite):
    role = "attention"
    seconds = 4
    single_calls = True
    needs = frozenset({"attention"})
    inputs = staticmethod(attention.inputs)

    @staticmethod
    def fresh(seed: int, factor: int) -> attention.AttentionInputs:
        return attention.inputs(seed).enlarged(factor)

    shown = _visible("square")
    shown_in_rows = _visible("padded")
    shown_in_windows = _visible("windowed")
    ones = _asked(lambda ask: ask.inputs.ones(ask.runner.request.dtype, ask.claim))
    head_numbers = _asked(lambda ask: ask.inputs.head_numbers(ask.runner.request.dtype, ask.claim))
    pointed = _asked(lambda ask: ask.inputs.pointed(ask.runner.request.dtype, ask.claim).calls)
    ordinary = _numeric("ordinary")
    hard = _numeric("hard")
    ragged = _numeric("ragged")
    sliding = _numeric("sliding")
    capped = _numeric("capped")
    scaled = _numeric("scaled")
    masked = _numeric("masked")
    shown_on_pages = _asked(lambda ask: ask.inputs.visible_on_pages(ask.runner.request.dtype, ask.claim))
    pointed_on_pages = _asked(lambda ask: ask.inputs.pointed_on_pages(ask.runner.request.dtype, ask.claim).calls)
    paged = _asked(lambda ask: ask.inputs.numeric(ask.inputs.paged(ask.claim), ask.runner.request.dtype, ask.claim))
    paged_sliding = _asked(
        lambda ask: ask.inputs.numeric(ask.inputs.paged_sliding(ask.claim), ask.runner.request.dtype, ask.claim)
    )
    denormal = _asked(lambda ask: ask.inputs.denormal(ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def repeated(ask: Ask) -> AttentionOutputs:
        calls = ask.inputs.numeric(ask.inputs.repeated, ask.runner.request.dtype, ask.claim)
        return ask.runner.attention(calls, repeats=ask.inputs.repeats, poison=True)

    @requirement(
        "ATT-010", "Each call MUST return the query's shape, dtype and device, and leave its inputs as they are."
    )
    def test_calls_are_answered(self) -> None:
        self.answers("ordinary", self.numeric("ordinary"))

    @requirement("ATT-020", "Every number MUST be finite, for huge, tiny and far apart scores and values too.")
    def test_numbers_are_finite(self) -> None:
        calls = self.numeric("hard")
        self.judge(criteria.attention.are_finite(calls, self.answers("hard", calls)))

    @requirement("ATT-030", "A query MUST see the keys up to its own position, all where attention is bidirectional.")
    def test_queries_see_their_keys(self) -> None:
        self.judge_keys("shown", "square")

    @requirement(
        "ATT-040", "In a ragged batch, a query MUST see no key of its row's padding.", parameters={"batch": "padded"}
    )
    def test_queries_see_no_padding(self) -> None:
        self.judge_keys("shown_in_rows", "padded")

    @requirement(
        "ATT-050",
        "A query MUST see the keys of its window, and no other.",
        parameters={"window": True, "narrowest_window": 1},
    )
    def test_queries_see_their_windows(self) -> None:
        self.judge_keys("shown_in_windows", "windowed")

    @requirement("ATT-060", "Values of one MUST give one.")
    def test_ones_give_one(self) -> None:
        calls = self.bench.inputs.ones(self.bench.dtype, self.bench.claim)
        outputs = self.answers("ones", calls)
        self.judge(criteria.attention_probes.ones_give_one(calls, outputs, **self.claimed))

    @requirement("ATT-070", "A query head MUST read the key head of its group.")
    def test_heads_are_mapped(self) -> None:
        calls = self.bench.inputs.head_numbers(self.bench.dtype, self.bench.claim)
        outputs = self.answers("head_numbers", calls)
        self.judge(criteria.attention_probes.heads_are_mapped(calls, outputs, **self.claimed))

    @requirement("ATT-080", "A query that points at one key MUST get that key's value, whichever page it lies on.")
    def test_keys_are_found(self) -> None:
        asked = self.bench.inputs.pointed(self.bench.dtype, self.bench.claim)
        outputs = self.answers("pointed", asked.calls)
        found = criteria.attention_probes.reads_what_it_points_at
        self.judge(found(asked.calls, outputs, asked.targets, dtype=self.bench.dtype))

    @requirement("ATT-090", "Outputs MUST be exact attention's within the rounding of the claimed precision.")
    def test_outputs_agree(self) -> None:
        self.judge_numbers("ordinary")

    @requirement(
        "ATT-100",
        "Outputs for sinks, outliers, rising scores, and huge and tiny values MUST be exact within claimed rounding.",
    )
    def test_hard_outputs_agree(self) -> None:
        self.judge_numbers("hard")

    @requirement(
        "ATT-110", "Outputs of ragged batches MUST be exact within claimed rounding.", parameters={"batch": "padded"}
    )
    def test_ragged_outputs_agree(self) -> None:
        self.judge_numbers("ragged")

    @requirement(
        "ATT-120", "Outputs of sliding windows MUST be exact within claimed rounding.", parameters={"window": True}
    )
    def test_sliding_outputs_agree(self) -> None:
        self.judge_numbers("sliding")

    @requirement(
        "ATT-130",
        "Outputs of capped scores, far beyond the cap, MUST be exact within claimed rounding.",
        parameters={"softcap": True},
    )
    def test_capped_outputs_agree(self) -> None:
        self.judge_numbers("capped")

    @requirement(
        "ATT-135",
        "Outputs for another scale than 1 / sqrt(head size) MUST be exact within claimed rounding.",
        parameters={"scale": True},
    )
    def test_scaled_outputs_agree(self) -> None:
        self.judge_numbers("scaled")

    @requirement(
        "ATT-140", "Repeated calls MUST each be finite and exact within claimed rounding, whatever memory held before."
    )
    def test_repeats_agree(self) -> None:
        calls, repeats = self.numeric("repeated"), self.bench.inputs.repeats
        outputs = self.answers("repeated", calls, repeats)
        self.judge(criteria.attention.are_finite(calls, outputs, repeats=repeats))
        self.judge(criteria.attention.agrees(calls, outputs, repeats=repeats, **self.claimed))

    @requirement(
        "ATT-150", "Repeated calls MUST be equal to the last bit where claimed.", parameters={"deterministic": True}
    )
    def test_repeats_are_equal(self) -> None:
        calls, repeats = self.numeric("repeated"), self.bench.inputs.repeats
        outputs = self.answers("repeated", calls, repeats)
        self.judge(criteria.attention.repeats_are_equal(calls, outputs, repeats=repeats))

    @requirement(
        "ATT-160",
        "A query that sees no key MUST get zeros where claimed.",
        parameters={"batch": "padded", "masked_rows": "zero"},
    )
    def test_masked_rows_are_zero(self) -> None:
        calls = self.numeric("masked")
        self.judge(criteria.attention_probes.masked_rows_are_zero(calls, self.answers("masked", calls)))

    @requirement("ATT-170", "Denormal values MUST keep their size where claimed.", parameters={"denormals": True})
    def test_denormals_stay(self) -> None:
        calls = self.bench.inputs.denormal(self.bench.dtype, self.bench.claim)
        outputs = self.answers("denormal", calls)
        self.judge(criteria.attention_probes.denormals_stay(calls, outputs, dtype=self.bench.dtype))

    @requirement(
        "ATT-180",
        "In pages, a query MUST see the keys of its row up to its own position, or of its window, and nothing else.",
        parameters={"paged": True},
    )
    def test_queries_see_their_pages(self) -> None:
        calls = self.bench.inputs.visible_on_pages(self.bench.dtype, self.bench.claim)
        self.judge(criteria.attention_probes.sees_its_keys(calls, self.answers("shown_on_pages", calls)))

    @requirement(
        "ATT-190",
        "A query that points at one key MUST get that key's value in every page size, wherever the pages lie.",
        parameters={"paged": True},
    )
    def test_keys_are_found_on_pages(self) -> None:
        asked = self.bench.inputs.pointed_on_pages(self.bench.dtype, self.bench.claim)
        outputs = self.answers("pointed_on_pages", asked.calls)
        found = criteria.attention_probes.reads_what_it_points_at
        self.judge(found(asked.calls, outputs, asked.targets, dtype=self.bench.dtype))

    @requirement(
        "ATT-200",
        "Outputs over pages MUST be exact within claimed rounding, in prefill, extending and decoding.",
        parameters={"paged": True},
    )
    def test_paged_outputs_agree(self) -> None:
        self.judge_numbers("paged", self.bench.inputs.paged(self.bench.claim))

    @requirement(
        "ATT-210",
        "Outputs of sliding windows over pages MUST be exact within claimed rounding.",
        parameters={"paged": True, "window": True},
    )
    def test_paged_sliding_outputs_agree(self) -> None:
        self.judge_numbers("paged_sliding", self.bench.inputs.paged_sliding(self.bench.claim))

    @property
    def claimed(self) -> dict[str, Any]:
        """Dtype and precision, by which numbers are judged."""
        return {"dtype": self.bench.dtype, "precision": self.bench.precision}

    def numeric(self, name: str, forms: Sequence[attention.Form] | None = None) -> tuple[AttentionCall, ...]:
        """The calls of these forms, or of those of that name, with their numbers."""
        inputs = self.bench.inputs
        chosen = getattr(inputs, name) if forms is None else forms
        calls: tuple[AttentionCall, ...] = inputs.numeric(chosen, self.bench.dtype, self.bench.claim)
        return calls

    def answers(self, name: str, calls: Sequence[AttentionCall], repeats: int = 1) -> AttentionOutputs:
        """The observation `name`, after the case was failed if an answer is at fault before its numbers are.

        Before what ran is looked at: of a kernel that raises nothing is seen, and the cause should be read first.
        """
        self.judge(criteria.attention.are_answered(calls, getattr(self.bench.observed, name), repeats=repeats))
        return self.observe(name)  # type: ignore[return-value]

    def judge_keys(self, name: str, forms: str) -> None:
        """The keys that queries see in the calls of these forms are theirs."""
        inputs = self.bench.inputs
        calls = inputs.visible(getattr(inputs, forms), self.bench.dtype, self.bench.claim)
        self.judge(criteria.attention_probes.sees_its_keys(calls, self.answers(name, calls)))

    def judge_numbers(self, name: str, forms: Sequence[attention.Form] | None = None) -> None:
        """Answers to the calls of these forms, or of those of that name, are right within the claimed rounding."""
        calls = self.numeric(name, forms)
        self.judge(criteria.attention.agrees(calls, self.answers(name, calls), **self.claimed))
