"""The keys of an attention call in pages, laid out as hard as an engine's cache may come to hold them.

Pages of all rows are drawn from one pool, no row's in order, with pages between them that nobody owns. A pool is meant
to be full of NaN before keys are written to it, the pages that rows own of a huge number: a page that is not the row's
shows as NaN, what stands behind a row's last key as a number that is far too large. NaN there would be unfair: kernels
multiply the rest of a page by a weight of zero, and an engine's cache holds old numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from conformance.runner import RAISED, AttentionCall, Effective

if TYPE_CHECKING:
    from numpy.typing import NDArray

HUGE = 30_000.0
"""What stands behind a row's last key in its last page: near the end of float16's range."""


@dataclass(frozen=True)
class Pages:
    """A pool of `count` pages of `size` slots, and which of them each row's keys lie on.

    `tables` is int32 [rows, widest]: key k of a row lies in slot k % size of page tables[row, k // size]. Behind a
    row's own pages its table leads to a page that nobody owns. Nobody owns page 0: engines keep it for padding.
    """

    size: int
    count: int
    tables: NDArray[np.int32]
    lengths: tuple[int, ...]  # keys of each row
    nobodys: int  # one of the pages that nobody owns

    @property
    def owned(self) -> NDArray[np.int64]:
        """The pages that hold keys, rising."""
        used = [self.tables[row, : -(-length // self.size)] for row, length in enumerate(self.lengths)]
        return np.sort(np.concatenate(used)).astype(np.int64)

    def slots(self, starts: Sequence[int], stops: Sequence[int]) -> NDArray[np.int64]:
        """The slots, counted through the pool, of each row's keys from `starts` to `stops`, row after row."""
        found = []
        for table, start, stop in zip(self.tables, starts, stops, strict=True):
            keys = np.arange(start, stop)
            found.append(table[keys // self.size].astype(np.int64) * self.size + keys % self.size)
        return np.concatenate(found)


def lay_out(lengths: Sequence[int], size: int) -> Pages:
    """Pages of `size` slots for rows of so many keys, the same ones every time. ValueError where there are no keys."""
    if size < 1 or not lengths or min(lengths) < 1:
        raise ValueError(f"pages of {size} keys for rows of {list(lengths)}: each should be 1 or more")
    needed = [-(-length // size) for length in lengths]
    count = 2 * sum(needed) + 3
    free = np.random.default_rng([size, *lengths]).permutation(np.arange(1, count, dtype=np.int32))
    tables = np.full((len(needed), max(needed)), free[-1], dtype=np.int32)
    start = 0
    for row, pages in enumerate(needed):
        tables[row, :pages] = _out_of_order(free[start : start + pages])
        start += pages
    return Pages(size, count, tables, tuple(lengths), int(free[-1]))


def _out_of_order(pages: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same pages, neither rising nor, where there are three, falling."""
    steps = np.diff(pages)
    if len(steps) and ((steps > 0).all() or (len(steps) > 1 and (steps < 0).all())):
        return pages[[1, 0, *range(2, len(pages))]]
    return pages


@dataclass(frozen=True)
class Packed:
    """A call's rows as engines have them: tokens one after the other, without padding.

    `lengths` are the keys of each row, `counts` its queries, which are the last of them.
    """

    lengths: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, call: AttentionCall) -> Packed:
        """The rows of a call: what is padding in them is left out."""
        lengths = call.lengths or (call.key.shape[2],) * len(call.query)
        return cls(lengths, tuple(min(call.query.shape[2], length) for length in lengths))

    @classmethod
    def whole(cls, call: AttentionCall) -> Packed:
        """The rows of a call whose queries were filled up by `filled_up`."""
        lengths = cls.of(call).lengths
        return cls(lengths, lengths)

    @property
    def before(self) -> tuple[int, ...]:
        """The keys of each row that an engine has computed before."""
        return tuple(length - count for length, count in zip(self.lengths, self.counts, strict=True))

    @property
    def decodes(self) -> bool:
        """Whether each row has one query, and some of them keys that an engine has computed before."""
        return max(self.counts) == 1 < max(self.lengths)

    def keys(self, tensor: torch.Tensor, starts: Sequence[int], stops: Sequence[int]) -> torch.Tensor:
        """[tokens, kv_heads, size] of keys or values [batch, kv_heads, keys, size], each row's from start to stop."""
        rows = zip(tensor, starts, stops, strict=True)
        return torch.cat([row[:, start:stop].transpose(0, 1) for row, start, stop in rows]).contiguous()

    def queries(self, tensor: torch.Tensor) -> torch.Tensor:
        """[tokens, heads, size] of queries [batch, heads, queries, size]."""
        rows = zip(tensor, self.counts, strict=True)
        return torch.cat([row[:, row.shape[1] - n :].transpose(0, 1) for row, n in rows]).contiguous()

    def unpacked(self, answer: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """An answer for each query token, [tokens, heads x size], in the queries' `shape`; zeros for padding."""
        found = answer.new_zeros(shape)
        parts = torch.split(answer.view(-1, shape[1], shape[3]), list(self.counts))
        for row, n, part in zip(found, self.counts, parts, strict=True):
            row[:, shape[2] - n :] = part.transpose(0, 1)
        return found


def filled_up(query: torch.Tensor, keys: int) -> torch.Tensor:
    """Queries for all keys of each row, zeros before the given ones: an encoder without a cache computes them all."""
    return torch.cat([query.new_zeros(*query.shape[:2], keys - query.shape[2], query.shape[3]), query], dim=2)


def poisoned(pool: torch.Tensor, pages: Pages) -> torch.Tensor:
    """The pool [pages, ...], NaN where nobody owns a page, and huge where somebody does; filled in place."""
    pool.fill_(float("nan"))
    pool[torch.from_numpy(pages.owned).to(pool.device)] = HUGE
    return pool


def counted(ran: Mapping[tuple[str, str], int], dtype: str, faults: Sequence[Sequence[str]]) -> Effective:
    """What ran, from the calls answered by the backend's name and the path of its class; two are both named."""
    kernels: Counter[str] = Counter()
    for (_, path), calls in ran.items():
        kernels[path] += calls
    names = "+".join(sorted({name for name, _ in ran}))
    answered = sum(not any(each.startswith(RAISED) for each in wrong) for wrong in faults)
    return Effective(dtype, names, dict(kernels), layers=1, forwards=answered)


def on(device: Any, values: Sequence[int] | NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers on the device."""
    return torch.as_tensor(np.asarray(values)).to(device, dtype)
