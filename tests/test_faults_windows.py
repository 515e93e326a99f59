"""Faults of sliding windows change exactly the keys that they say, in rows with padding and without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.faults import library

pytestmark = pytest.mark.torch

WINDOW = 8


@pytest.mark.parametrize("fault", ["window.plus-one", "window.minus-one", "window.ignored"])
@pytest.mark.parametrize("lengths", [[3, 8, 20], [9], [20, 1]])
def test_windows_change_by_exactly_what_is_said(fault: str, lengths: list[int]) -> None:
    """Against masks that are written out key by key, padding on the left included."""
    import torch

    from conformance.faults.kernel import KernelCall

    longest = max(lengths)

    def mask(window: int) -> Any:
        seen = torch.zeros(len(lengths), 1, longest, longest, dtype=torch.bool)
        for row, length in enumerate(lengths):
            for query in range(longest - length, longest):
                for key in range(longest - length, query + 1):
                    seen[row, 0, query, key] = query - key < window
        return seen

    asked: list[Any] = []

    def kernel(module: Any, query: Any, key: Any, value: Any, given: Any, **options: Any) -> Any:
        asked.append(given)
        return query.transpose(1, 2), None

    changes: list[Any] = []
    host = SimpleNamespace(attention=changes.append)
    library.fault(fault).inject(host)  # type: ignore[arg-type]
    states = torch.zeros(len(lengths), 1, longest, 4)
    changes[0](KernelCall(SimpleNamespace(), states, states, states, mask(WINDOW), {}, kernel, "sdpa"))
    expected = {"window.plus-one": WINDOW + 1, "window.minus-one": WINDOW - 1, "window.ignored": longest}[fault]
    real = mask(longest).any(-1)  # queries that are padding see nothing that anyone reads
    assert torch.equal(asked[0] & real[..., None], mask(expected))
