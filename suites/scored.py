"""What suites of scalar scores share: the answers are float [n], in groups of which an order is promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import criteria
from suites.company import InCompany


class Scored(InCompany):
    """Subclasses say with `score` which numbers of an answer are scores; their inputs have `groups` and `grades`."""

    @staticmethod
    def score(answers: Any) -> Any:
        """The scores, float [n], in the answers of engine, reference or yardstick."""
        raise NotImplementedError

    @classmethod
    def directed(cls, answers: Any) -> Any:
        return cls.score(answers)

    def judge_scores(self) -> None:
        """Judge the scores against the reference's, allowed the yardstick's error."""
        self.judge(
            criteria.score.agrees(
                x=self.score(self.observed),
                r=self.score(self.reference),
                e=self.score(self.yardstick),
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    def judge_order(self, *, grades: Sequence[int] | None) -> None:
        """Judge the order within each group against the reference's, and against the known `grades` if given."""
        self.judge(
            criteria.score.are_ordered(
                x=self.score(self.observed),
                r=self.score(self.reference),
                e=self.score(self.yardstick),
                groups=self.bench.inputs.groups,
                grades=grades,
            )
        )
