"""A session whose observations are judged once more: by the eager yardstick, and to see which test asked for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.execution.outcome import Recorder
from conformance.execution.session import Session
from conformance.judgement import Judgement
from conformance.reference import compute, store
from conformance.runner import Observation
from conformance.selftest.elsewhere import Numbers, is_compared
from conformance.selftest.judging import Again, Place
from conformance.suite import Answers


class Rejudging(Session):
    """A session that answers `judged_again` once its tests have been attempted."""

    def judged_again(self, tests: Sequence[str], isa: str) -> Again:
        """What the same model answers with eager attention in the same dtype, and how much work each test asks for.

        Without the former where no such yardstick is shipped.
        """
        bench = self._bench
        if bench is None:
            return Again()
        yardstick = self._eager(isa)
        eager: dict[Place, Numbers] = {}
        work: dict[str, int] = {}
        for test in tests:
            watched = _Watched(bench.observed)
            case = self.suite(test)
            case.bench = replace(
                bench,
                observed=watched,
                yardstick=bench.yardstick if yardstick is None else Answers(yardstick.__getitem__),
            )
            case.run(Recorder())
            work[test] = max(map(_work, watched.answers.values()), default=0)
            judged: Sequence[Judgement] = getattr(case, "judgements", ())
            for index, judgement in enumerate(judged):
                if yardstick is not None and is_compared(judgement.criterion) and "e" in judgement.rows:
                    eager[test, index] = judgement.rows["e"]
        return Again(eager, work)

    def _eager(self, isa: str) -> store.Part | None:
        folder = Path(self.request.folder)
        parts = store.shipped(folder, store.identify(self.suite, folder, self.request.parameters, isa))
        reference = parts.load(compute.REFERENCE)
        if reference is None:
            return None
        precision = "ieee" if self.request.dtype == "float32" else "eager"
        return parts.yardstick(compute.part_name(self.request.dtype, precision), reference)


def _work(answer: Observation) -> int:
    """What an answer costs, roughly: passes of the model, times prompts. The same in every run, unlike seconds."""
    return answer.effective.forwards * max(1, len(answer.prompt_token_ids))


class _Watched(Answers):
    """Another's answers, all known by now; keeps those that were asked for."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(lambda name: getattr(answers, name))

    @property
    def answers(self) -> dict[str, Any]:
        """Those that were asked for, by name."""
        return self._known
