"""Attention: one kernel, given queries, keys and values, and nothing of a model around it.

The promises hold for the attention function that the layers of a model with the role `attention` call, and for any
other kernel that answers the same calls. Which keys a query sees, which head it reads and which page is shown exactly,
by values chosen for it; the numbers are held against exact attention, within the rounding of the claimed class.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import AttentionCall, AttentionOutputs
from conformance.suite import Ask, ConformanceSuite, observation, requirement
from suites.inputs import attention

__all__ = ["Attention", "load_tests"]


def _asked(ask: Ask, calls: Sequence[AttentionCall]) -> AttentionOutputs:
    return ask.runner.attention(calls)


class Attention(ConformanceSuite):
    role = "attention"
    seconds = 4
    single_calls = True
    needs = frozenset({"attention"})
    inputs = staticmethod(attention.inputs)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def shown(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.visible(ask.inputs.square, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def shown_in_rows(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.visible(ask.inputs.padded, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def shown_in_windows(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.visible(ask.inputs.windowed, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def ones(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.ones(ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def head_numbers(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.head_numbers(ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def pointed(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.pointed(ask.runner.request.dtype, ask.claim).calls)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def ordinary(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.numeric(ask.inputs.ordinary, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def hard(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.numeric(ask.inputs.hard, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def ragged(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.numeric(ask.inputs.ragged, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def sliding(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.numeric(ask.inputs.sliding, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def capped(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.numeric(ask.inputs.capped, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def repeated(ask: Ask) -> AttentionOutputs:
        calls = ask.inputs.numeric(ask.inputs.repeated, ask.runner.request.dtype, ask.claim)
        return ask.runner.attention(calls, repeats=ask.inputs.repeats, poison=True)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def masked(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.numeric(ask.inputs.masked, ask.runner.request.dtype, ask.claim))

    @observation(reference=False, yardstick=False)
    @staticmethod
    def denormal(ask: Ask) -> AttentionOutputs:
        return _asked(ask, ask.inputs.denormal(ask.runner.request.dtype, ask.claim))

    @requirement("ATT-010", "Each call MUST return the query's shape, dtype and device, and leave its inputs as they are.")
    def test_calls_are_answered(self) -> None:
        self.judge(criteria.attention.are_answered(self._calls("ordinary"), self.observed.ordinary))

    @requirement("ATT-020", "Every number MUST be finite, for huge, tiny and far apart scores and values too.")
    def test_numbers_are_finite(self) -> None:
        self.judge(criteria.attention.are_finite(self._calls("hard"), self.observed.hard))

    @requirement("ATT-030", "A query MUST see the keys up to its own position, all where attention is bidirectional.")
    def test_queries_see_their_keys(self) -> None:
        self.judge_keys("square", self.observed.shown)

    @requirement(
        "ATT-040", "In a ragged batch, a query MUST see no key of its row's padding.", parameters={"batch": "padded"}
    )
    def test_queries_see_no_padding(self) -> None:
        self.judge_keys("padded", self.observed.shown_in_rows)

    @requirement("ATT-050", "A query MUST see the keys of its window, and no other.", parameters={"window": True})
    def test_queries_see_their_windows(self) -> None:
        self.judge_keys("windowed", self.observed.shown_in_windows)

    @requirement("ATT-060", "Values of one MUST give one.")
    def test_ones_give_one(self) -> None:
        bench = self.bench
        calls = bench.inputs.ones(bench.dtype, bench.claim)
        judge = criteria.attention_probes.ones_give_one
        self.judge(judge(calls, self.observed.ones, dtype=bench.dtype, precision=bench.precision))

    @requirement("ATT-070", "A query head MUST read the key head of its group.")
    def test_heads_are_mapped(self) -> None:
        bench = self.bench
        calls = bench.inputs.head_numbers(bench.dtype, bench.claim)
        judge = criteria.attention_probes.heads_are_mapped
        self.judge(judge(calls, self.observed.head_numbers, dtype=bench.dtype, precision=bench.precision))

    @requirement("ATT-080", "A query that points at one key MUST get that key's value, whichever page it lies on.")
    def test_keys_are_found(self) -> None:
        bench = self.bench
        asked = bench.inputs.pointed(bench.dtype, bench.claim)
        judge = criteria.attention_probes.reads_what_it_points_at
        self.judge(judge(asked.calls, self.observed.pointed, asked.targets, dtype=bench.dtype))

    @requirement("ATT-090", "Outputs MUST be exact attention's within the rounding of the claimed precision.")
    def test_outputs_agree(self) -> None:
        self.judge_numbers("ordinary", self.observed.ordinary)

    @requirement("ATT-100", "So MUST those for sinks, outliers, rising scores, and huge and tiny values.")
    def test_hard_outputs_agree(self) -> None:
        self.judge_numbers("hard", self.observed.hard)

    @requirement("ATT-110", "So MUST those of ragged batches.", parameters={"batch": "padded"})
    def test_ragged_outputs_agree(self) -> None:
        self.judge_numbers("ragged", self.observed.ragged)

    @requirement("ATT-120", "So MUST those of sliding windows.", parameters={"window": True})
    def test_sliding_outputs_agree(self) -> None:
        self.judge_numbers("sliding", self.observed.sliding)

    @requirement("ATT-130", "So MUST those with a softcap, with scores beyond it.", parameters={"softcap": True})
    def test_capped_outputs_agree(self) -> None:
        self.judge_numbers("capped", self.observed.capped)

    @requirement("ATT-140", "Repeated calls over memory full of NaN MUST agree too, each of them.")
    def test_repeats_agree(self) -> None:
        calls, repeats = self._calls("repeated"), self.bench.inputs.repeats
        self.judge(criteria.attention.are_finite(calls, self.observed.repeated, repeats=repeats))
        self.judge_numbers("repeated", self.observed.repeated, repeats)

    @requirement("ATT-150", "Repeated calls MUST be bit-equal where claimed.", parameters={"deterministic": True})
    def test_repeats_are_equal(self) -> None:
        repeats = self.bench.inputs.repeats
        self.judge(
            criteria.attention.repeats_are_equal(self._calls("repeated"), self.observed.repeated, repeats=repeats)
        )

    @requirement(
        "ATT-160",
        "A query that sees no key MUST get zeros where claimed.",
        parameters={"batch": "padded", "masked_rows": "zero"},
    )
    def test_masked_rows_are_zero(self) -> None:
        self.judge(criteria.attention_probes.masked_rows_are_zero(self._calls("masked"), self.observed.masked))

    @requirement("ATT-170", "Denormal values MUST keep their size where claimed.", parameters={"denormals": True})
    def test_denormals_stay(self) -> None:
        calls = self.bench.inputs.denormal(self.bench.dtype, self.bench.claim)
        self.judge(criteria.attention_probes.denormals_stay(calls, self.observed.denormal, dtype=self.bench.dtype))

    def judge_keys(self, forms: str, outputs: AttentionOutputs) -> None:
        """The keys that queries see in the calls of these forms are theirs."""
        bench = self.bench
        calls = bench.inputs.visible(getattr(bench.inputs, forms), bench.dtype, bench.claim)
        self.judge(criteria.attention_probes.sees_its_keys(calls, outputs))

    def judge_numbers(self, forms: str, outputs: AttentionOutputs, repeats: int = 1) -> None:
        """Answers to the calls of these forms are right within the claimed rounding."""
        bench = self.bench
        self.judge(
            criteria.attention.agrees(
                self._calls(forms), outputs, dtype=bench.dtype, precision=bench.precision, repeats=repeats
            )
        )

    def _calls(self, forms: str) -> tuple[AttentionCall, ...]:
        bench = self.bench
        calls: tuple[AttentionCall, ...] = bench.inputs.numeric(
            getattr(bench.inputs, forms), bench.dtype, bench.claim
        )
        return calls
