"""The shapes of attention calls, around the edges of blocks, pages and tiles, by what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from conformance.profile import Claim

LENGTHS = (15, 16, 17, 63, 64, 65, 127, 128, 129, 500)
"""On both sides of the sizes that blocks and pages have, and one of several blocks that is no multiple of any."""

SIZES = (40, 64, 72, 80, 96, 112, 128, 192, 256)
GROUPS = ((2, 2), (4, 2), (5, 1), (14, 2), (8, 1))
"""Query and key heads: groups of 1, 2, 5, 7 and 8."""

Shapes = Literal["quick", "full"]

_LEAST_UNIT = 16
"""Keys about whose multiples calls in smaller pages have their edges: of pages of one key, several are looked at."""


@dataclass(frozen=True)
class Form:
    """The shape of a call, and what its numbers are like."""

    heads: tuple[int, int]  # of queries and of keys
    queries: int
    keys: int
    size: int
    numbers: str = "normal"
    batch: int = 1
    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    scale: float | None = None
    lengths: tuple[int, ...] | None = None
    page_size: int | None = None

    @property
    def batch_forms(self) -> set[str]:
        """What a profile calls such a batch."""
        forms = {"padded"} if self.lengths else set()
        if self.queries == 1:
            return {*forms, "decode"}
        return {*forms, "chunked"} if self.queries < self.keys else forms or {"unpadded"}

    def suits(self, claim: Claim | None) -> Form | None:
        """The form, with a head size that is claimed, or None where the batch form or direction is not."""
        if claim is None:
            return self
        if not self.batch_forms <= set(claim.batch) or not (self.causal or claim.encoder):
            return None
        if claim.head_sizes is None or self.size in claim.head_sizes:
            return self
        return replace(self, size=min(claim.head_sizes, key=lambda size: (abs(size - self.size), size)))


def forms(seed: int, shapes: Shapes) -> dict[str, tuple[Form, ...]]:
    """Forms without pages, by what they show; "full" crosses head sizes, groups and lengths."""
    squares = [
        *(Form(_turn(GROUPS, i), n, n, _turn(SIZES, i + 1)) for i, n in enumerate(LENGTHS)),
        *(Form(_turn(GROUPS, i), n, n, _turn(SIZES, i), causal=False) for i, n in enumerate((17, 64, 129))),
        Form((14, 2), 33, 129, 64),
        Form((8, 1), 64, 65, 128),
        Form((4, 2), 17, 500, 80, causal=False),
        *(Form(heads, 1, n, 64, batch=2) for heads, n in zip(GROUPS, (16, 65, 128, 129, 500), strict=True)),
    ]
    padded = [
        Form((4, 2), 65, 65, 64, lengths=(65, 64, 63, 17, 1)),
        Form((5, 1), 129, 129, 80, lengths=(129, 16), causal=False),
        Form((14, 2), 1, 129, 128, lengths=(129, 128, 65, 1)),
        Form((8, 1), 16, 128, 64, lengths=(128, 65, 16)),
    ]
    windowed = [
        *(Form((4, 2), 129, 129, 64, window=width) for width in (1, 16, 63, 64, 65)),
        Form((5, 1), 500, 500, 128, window=128),
        Form((14, 2), 33, 129, 80, window=17),
        Form((8, 1), 1, 129, 64, batch=2, window=64),
        Form((4, 2), 65, 65, 64, lengths=(65, 40, 17), window=16),
        Form((4, 2), 1, 129, 64, lengths=(129, 65, 17), window=64),
    ]
    ordinary = [
        Form((4, 2), 500, 500, 128),
        Form((4, 2), 500, 500, 64, "peaky"),
        Form((5, 1), 129, 129, 80),
        Form((14, 2), 127, 127, 96, "peaky"),
        Form((8, 1), 128, 128, 112),
        Form((2, 2), 65, 65, 40, "peaky", causal=False, batch=2),
        Form((4, 2), 63, 129, 72, causal=False),
        Form((8, 1), 33, 500, 256, "peaky"),
        Form((4, 2), 64, 129, 192),
        Form((14, 2), 1, 500, 128, batch=8),
        Form((8, 1), 1, 129, 64, "peaky", batch=8),
        Form((4, 2), 16, 16, 64, batch=4),
    ]
    hard = [
        Form((4, 2), 500, 500, 128, "structured"),
        Form((5, 1), 257, 257, 64, "rising"),
        Form((8, 1), 1, 500, 128, "rising", batch=8),
        Form((4, 2), 129, 129, 64, "huge"),
        Form((4, 2), 129, 129, 64, "tiny"),
        Form((4, 2), 65, 129, 128, "structured", causal=False),
    ]
    ragged = [
        Form((4, 2), 129, 129, 64, lengths=(129, 64, 17)),
        Form((5, 1), 65, 65, 80, "peaky", lengths=(65, 40), causal=False),
        Form((14, 2), 1, 500, 128, lengths=(500, 129, 65, 16)),
        Form((8, 1), 33, 128, 128, "structured", lengths=(128, 65)),
    ]
    sliding = [
        Form((4, 2), 500, 500, 128, "structured", window=64),
        Form((14, 2), 65, 129, 64, "peaky", window=16),
        Form((8, 1), 1, 500, 64, batch=4, window=128),
    ]
    capped = [
        Form((4, 2), 257, 257, 128, "peaky", softcap=5.0),
        Form((14, 2), 33, 129, 64, "structured", softcap=20.0),
        Form((8, 1), 1, 129, 256, "peaky", batch=8, softcap=5.0),
        Form((4, 2), 129, 129, 64, "structured", softcap=20.0, causal=False),
    ]
    scaled = [
        Form((4, 2), 129, 129, 128, "peaky", scale=256**-0.5),
        Form((5, 1), 65, 65, 64, scale=1.0, causal=False),
        Form((8, 1), 1, 129, 128, batch=4, scale=0.05),
    ]
    repeated = [
        Form((4, 2), 129, 129, 64),
        Form((8, 1), 1, 500, 128, batch=4),
        Form((5, 1), 65, 65, 80, causal=False, batch=2),
    ]
    masked = [Form((4, 2), 65, 65, 64, lengths=(65, 17, 1)), Form((8, 1), 129, 129, 128, lengths=(129, 64))]
    if shapes == "full":
        squares += _crossed(seed, "square", 60)
        ordinary += _crossed(seed, "ordinary", 120, ("normal", "peaky"))
        hard += _crossed(seed, "hard", 60, ("structured", "rising", "huge", "tiny"))
    return {
        "square": tuple(squares),
        "padded": tuple(padded),
        "windowed": tuple(windowed),
        "ordinary": tuple(ordinary),
        "hard": tuple(hard),
        "ragged": tuple(ragged),
        "sliding": tuple(sliding),
        "capped": tuple(capped),
        "scaled": tuple(scaled),
        "repeated": tuple(repeated),
        "masked": tuple(masked),
    }


def on_pages(page_size: int) -> tuple[Form, ...]:
    """Prefill, extending what is in pages, and decoding: rows that end and begin at pages' edges and beside them."""
    unit = _unit(page_size)
    found = (
        Form((4, 2), 2 * unit + 1, 2 * unit + 1, 64, "structured"),
        Form((5, 1), unit + 3, 3 * unit + 1, 80, "peaky"),
        Form((8, 1), unit, 2 * unit, 128, "peaky", batch=2),
        Form((4, 2), 3, 2 * unit + 1, 96, "structured", lengths=(2 * unit + 1, unit + 1, unit, unit - 1)),
        Form((14, 2), 1, 3 * unit, 128, "peaky", lengths=(3 * unit, 2 * unit + 1, unit + 1, unit, unit - 1, 1)),
        Form((8, 1), 1, 2 * unit + 1, 64, batch=4),
    )
    return tuple(replace(form, page_size=page_size) for form in found)


def windowed_on_pages(page_size: int) -> tuple[Form, ...]:
    """The same with windows that end at pages' edges and beside them."""
    unit = _unit(page_size)
    found = (
        Form((4, 2), 2 * unit + 1, 2 * unit + 1, 64, "structured", window=unit - 1),
        Form((5, 1), unit + 3, 3 * unit + 1, 80, "peaky", window=unit + 1),
        Form((14, 2), 1, 3 * unit, 128, "peaky", lengths=(3 * unit, 2 * unit + 1, unit, 1), window=unit),
    )
    return tuple(replace(form, page_size=page_size) for form in found)


def _unit(page_size: int) -> int:
    """The least multiple of a page that is no less than `_LEAST_UNIT` keys."""
    return page_size * -(-_LEAST_UNIT // page_size)


def _turn(items: Sequence[Any], index: int) -> Any:
    return items[index % len(items)]


def _crossed(seed: int, what: str, count: int, numbers: Sequence[str] = ("normal",)) -> list[Form]:
    """Forms whose sides are drawn; all head sizes, groups, lengths and kinds of numbers come round in turn."""
    rng = Random(f"attention {what} {seed}")
    found = []
    for index in range(count):
        keys = _turn(LENGTHS, index)
        queries = rng.choice([keys, keys, rng.randint(2, keys), 1])
        form = Form(_turn(GROUPS, index // 2), queries, keys, _turn(SIZES, index // 3), _turn(numbers, index // 5))
        found.append(replace(form, causal=rng.random() < 0.7, batch=rng.choice([1, 2])))
    return found
