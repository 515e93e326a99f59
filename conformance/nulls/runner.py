"""A transformers runner that computes in one of the null library's ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from conformance.engines import batching
from conformance.engines.transformers import TransformersRunner
from conformance.nulls.library import null
from conformance.runner import LoadRequest

if TYPE_CHECKING:
    import torch


class NullRunner(TransformersRunner):
    """`options["variation"]` is the id of the null; the other options are the target's own.

    A variation may set `arrangement` (of the prompts in batches: "length", "arrival" or "reversed") and `extra_columns`
    (of padding), and has what it changes outside this object taken back by `undo`.
    """

    def __init__(self, request: LoadRequest) -> None:
        self.null = null(str(request.options["variation"]))
        super().__init__(replace(request, options={**request.options, **self.null.options}))
        self.arrangement = "length"
        self.extra_columns = 0
        self._undo = ExitStack()

    def __enter__(self) -> NullRunner:
        super().__enter__()
        try:
            self.null.vary(self)
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()
        super().__exit__(kind, error, trace)

    def undo(self, action: Callable[[], object]) -> None:
        """Have `action` called, the last first, when the model is released."""
        self._undo.callback(action)

    def _batches(self, lengths: Sequence[int], *, extra: int = 0) -> Iterator[list[int]]:
        if self.arrangement == "length":
            return super()._batches(lengths, extra=extra)
        order = list(range(len(lengths)))
        return _as_they_come(order[::-1] if self.arrangement == "reversed" else order, lengths, self.batch_size, extra)

    def _pad(self, rows: Sequence[Sequence[int]], side: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if not self.extra_columns:
            return super()._pad(rows, side)
        longest = max(len(row) for row in rows) + self.extra_columns
        ids, mask, positions = super()._pad([*rows, [0] * longest], side)
        return ids[:-1], mask[:-1], positions[:-1]


def _as_they_come(order: Sequence[int], lengths: Sequence[int], size: int, extra: int) -> Iterator[list[int]]:
    """Batches in this order, within the bounds that `batching.batches` keeps."""
    batch: list[int] = []
    for index in order:
        longest = max(1, *(lengths[each] for each in [*batch, index]))
        rows = min(size, batching.PADDED_TOKENS // (longest + extra), batching.ATTENTION_SCORES // longest**2)
        if batch and len(batch) + 1 > rows:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
