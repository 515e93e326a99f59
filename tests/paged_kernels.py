"""Attention in pages in plain torch, written apart from any engine: one that is right, and copies with one thing wrong.

Keys are written and read slot by slot through the row's table, as a kernel does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from conformance.engines.kernel_calls import perform
from conformance.engines.paged_calls import Packed, Pages, lay_out, poisoned
from conformance.runner import AttentionCall


@dataclass(frozen=True)
class PagedKernel:
    """A kernel for `perform`. Fields make it wrong."""

    page_size: int = 32  # where a call names none
    ignores_table: bool = False  # a row's pages are read one behind the other from its first
    next_page: bool = False  # the page behind each is read
    edge: bool = False  # the last key of a full page is read from the page's first slot
    beyond: int = 0  # so many slots behind the row's last key are seen
    stale: bool = False  # the keys of this step are not written
    first_row: bool = False  # every row's keys are read from the first row's pages

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: AttentionCall
    ) -> torch.Tensor:
        """The output, [batch, heads, queries, size]."""
        rows = Packed.of(call)
        pages = lay_out(rows.lengths, call.page_size or self.page_size)
        shape = (pages.count, pages.size, key.shape[1], key.shape[3])
        pools = [poisoned(torch.empty(shape, dtype=query.dtype), pages).view(-1, *shape[2:]) for _ in range(2)]
        stops = rows.before if self.stale else rows.lengths
        starts = [0] * len(rows.lengths)
        written = torch.from_numpy(pages.slots(starts, stops))
        for pool, each in zip(pools, (key, value), strict=True):
            pool[written] = rows.keys(each, starts, stops)
        tokens = rows.queries(query).split(rows.counts)
        answers = [self._row(part, row, rows, pages, pools, call) for row, part in enumerate(tokens)]
        return rows.unpacked(torch.cat(answers), query.shape)

    def _row(
        self, query: torch.Tensor, row: int, rows: Packed, pages: Pages, pools: list[torch.Tensor], call: AttentionCall
    ) -> torch.Tensor:
        length = rows.lengths[row] + self.beyond
        at = torch.arange(length)
        table = torch.from_numpy(pages.tables[0 if self.first_row else row]).long()
        page = (
            table[0] + at // pages.size if self.ignores_table else table[(at // pages.size).clamp(max=len(table) - 1)]
        )
        page = (page + self.next_page) % pages.count
        place = at % pages.size
        if self.edge:
            place = torch.where(place == pages.size - 1, 0, place)
        slots = page * pages.size + place
        own = torch.arange(query.shape[1]) // (query.shape[1] // pools[0].shape[1])
        keys, values = (pool[slots][:, own].transpose(0, 1).float() for pool in pools)
        scores = query.transpose(0, 1).float() @ keys.transpose(1, 2)
        scores = scores * (query.shape[2] ** -0.5 if call.scale is None else call.scale)
        positions = torch.arange(rows.before[row], rows.lengths[row])[:, None] + self.beyond
        seen = at <= positions
        if call.window is not None:
            seen &= at > positions - call.window
        weights = scores.masked_fill(~seen, float("-inf"))
        weights = (weights - weights.max(dim=2, keepdim=True).values).exp()
        narrow = weights.to(query.dtype).float()
        answer = narrow @ values / weights.sum(dim=2, keepdim=True)
        return answer.transpose(0, 1).to(query.dtype)


def in_numpy(kernel: PagedKernel) -> Any:
    """The kernel as `attention_kernels.KernelInNumpy` calls them."""

    def call_one(call: AttentionCall, dtype: str) -> Any:
        values, faults = perform([call], kernel, device="cpu", dtype=getattr(torch, dtype))
        return faults[0][0] if faults[0] else values[0]

    return call_one
