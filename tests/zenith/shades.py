"""Shades: a second suite on the colours' model, whose promises are about what the engine calls its variants."""

from __future__ import annotations

from conformance import criteria
from conformance.runner import Scalars
from conformance.suite import Ask, ConformanceSuite, observation, requirement

PAIRS = tuple((f"light {index}", f"dark {index}") for index in range(16))


class Shades(ConformanceSuite):
    role = "colours"
    needs = frozenset({"score_pairs"})
    inputs = staticmethod(lambda: PAIRS)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def usual(ask: Ask) -> Scalars:
        return ask.runner.score_pairs(ask.inputs)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def chunked(ask: Ask) -> Scalars:
        return ask.variant("chunked").score_pairs(ask.inputs)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def between(ask: Ask) -> Scalars:
        ask.variant("chunked").score_pairs(ask.inputs)
        return ask.runner.score_pairs(ask.inputs)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def graph(ask: Ask) -> Scalars:
        return ask.variant("graph").score_pairs(ask.inputs)

    @requirement("SHD-010", "Every pair MUST have its shade.")
    def test_0_usual_is_complete(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.usual, count=len(PAIRS)))

    @requirement("SHD-020", "Shades MUST be complete in chunks.", parameters={"variant": "chunked"})
    def test_1_chunks_are_complete(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.chunked, count=len(PAIRS)))

    @requirement("SHD-030", "Shades MUST be as they were after chunks.", parameters={"variant": "chunked"})
    def test_2_usual_is_complete_after_chunks(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.between, count=len(PAIRS)))

    @requirement("SHD-040", "Shades MUST be complete in chunks once more.", parameters={"variant": "chunked"})
    def test_3_chunks_are_complete_once_more(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.chunked, count=len(PAIRS)))

    @requirement("SHD-050", "Shades MUST be complete as a graph.", parameters={"variant": "graph"})
    def test_4_graph_is_complete(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.graph, count=len(PAIRS)))
