"""Attention calls: shapes around the edges of blocks, pages and tiles, and numbers that show what kernels get wrong.

What is asked of a kernel is what its profile claims: head sizes, batch forms, bidirectional attention. A head size that
is not claimed is replaced by one that is, so that the rest of the shape stays in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from conformance.runner import AttentionCall

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from conformance.profile import Claim

    Make = Callable[["Form", np.random.Generator], "Tensors"]
    Tensors = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

LENGTHS = (15, 16, 17, 63, 64, 65, 127, 128, 129, 500)
"""On both sides of the sizes that blocks and pages have, and one of several blocks that is no multiple of any."""

SIZES = (40, 64, 72, 80, 96, 112, 128, 192, 256)
GROUPS = ((2, 2), (4, 2), (5, 1), (14, 2), (8, 1))
"""Query and key heads: groups of 1, 2, 5, 7 and 8."""

_KEPT = 3
"""Sets of calls that are kept: an observation and its promises make the same ones, and all together are 200 MB."""

Shapes = Literal["quick", "full"]


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


@dataclass(frozen=True)
class Pointed:
    """Calls whose queries point at one key each: `targets[i]` is int [batch, heads, queries] of call i."""

    calls: tuple[AttentionCall, ...]
    targets: tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class AttentionInputs:
    """Forms by what they show. Calls are made of them for a dtype and a claim (None: anything is claimed)."""

    seed: int
    square: tuple[Form, ...]
    padded: tuple[Form, ...]
    windowed: tuple[Form, ...]
    ordinary: tuple[Form, ...]
    hard: tuple[Form, ...]
    ragged: tuple[Form, ...]
    sliding: tuple[Form, ...]
    capped: tuple[Form, ...]
    scaled: tuple[Form, ...]
    repeated: tuple[Form, ...]
    masked: tuple[Form, ...]
    repeats: int

    def visible(self, forms: Sequence[Form], dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """All scores equal, values one-hot: what is not zero was seen."""
        return _made(self._suited(forms, claim), "visible", dtype, self.seed)

    def numeric(self, forms: Sequence[Form], dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """Numbers as the forms say."""
        return _made(self._suited(forms, claim), "numeric", dtype, self.seed)

    def ones(self, dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """Values of one; those of padding are seven."""
        return _made(self._suited((*self.square, *self.padded), claim), "ones", dtype, self.seed)

    def head_numbers(self, dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """Values that are their key head's number, from 1."""
        return _made(self._suited(self.square, claim), "heads", dtype, self.seed)

    def enlarged(self, factor: int) -> AttentionInputs:
        """The same forms, those with numbers in batches that are so many times as large."""

        def larger(forms: tuple[Form, ...]) -> tuple[Form, ...]:
            return tuple(
                replace(form, batch=form.batch * factor, lengths=form.lengths and form.lengths * factor)
                for form in forms
            )

        return replace(
            self,
            ordinary=larger(self.ordinary),
            hard=larger(self.hard),
            ragged=larger(self.ragged),
            sliding=larger(self.sliding),
            capped=larger(self.capped),
            scaled=larger(self.scaled),
            repeated=larger(self.repeated),
        )

    def denormal(self, dtype: str, claim: Claim | None) -> tuple[AttentionCall, ...]:
        """One denormal value everywhere, all scores equal, a power of two of keys."""
        forms = (Form((4, 2), 64, 64, 64, causal=False), Form((4, 2), 1, 128, 128, batch=2))
        return _made(self._suited(forms, claim), "denormal", dtype, self.seed)

    def pointed(self, dtype: str, claim: Claim | None) -> Pointed:
        """Queries that each point at one key, whose values say where it lies."""
        return _pointed(self._suited((*self.square, *self.padded), claim), dtype, self.seed)

    @staticmethod
    def _suited(forms: Sequence[Form], claim: Claim | None) -> tuple[Form, ...]:
        return tuple(dict.fromkeys(found for form in forms if (found := form.suits(claim)) is not None))


@cache
def inputs(seed: int = 0, shapes: Shapes = "quick") -> AttentionInputs:
    """The forms; "full" crosses head sizes, groups and lengths, "quick" takes each of them at least once."""
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
    return AttentionInputs(
        seed=seed,
        square=tuple(squares),
        padded=tuple(padded),
        windowed=tuple(windowed),
        ordinary=tuple(ordinary),
        hard=tuple(hard),
        ragged=tuple(ragged),
        sliding=tuple(sliding),
        capped=tuple(capped),
        scaled=tuple(scaled),
        repeated=tuple(repeated),
        masked=tuple(masked),
        repeats=24 if shapes == "quick" else 300,
    )


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


@lru_cache(_KEPT)
def _made(forms: tuple[Form, ...], kind: str, dtype: str, seed: int) -> tuple[AttentionCall, ...]:
    import numpy as np

    rng = np.random.default_rng([seed, len(kind), len(forms)])
    return tuple(_call(form, *_MAKERS[kind](form, rng, dtype), dtype=dtype) for form in forms)


def _call(form: Form, tensors: Tensors, lengths: tuple[int, ...] | None = None, *, dtype: str) -> AttentionCall:
    import numpy as np

    from conformance.criteria.rounding import rounded

    query, key, value = (rounded(each, dtype).astype(np.float32) for each in tensors)
    lengths = form.lengths if lengths is None else lengths
    return AttentionCall(query, key, value, form.causal, form.scale, form.window, form.softcap, lengths)


def _normal(form: Form, rng: np.random.Generator) -> Tensors:
    batch = form.batch if form.lengths is None else len(form.lengths)
    query = rng.standard_normal((batch, form.heads[0], form.queries, form.size))
    key, value = (rng.standard_normal((batch, form.heads[1], form.keys, form.size)) for _ in range(2))
    return query, key, value


def _peaky(form: Form, rng: np.random.Generator) -> Tensors:
    """Four times the queries: few keys hold most of the weight."""
    query, key, value = _normal(form, rng)
    return 4 * query, key, value


def _structured(form: Form, rng: np.random.Generator) -> Tensors:
    """As trained models have them: the first key is a sink for all queries, and one channel is an outlier's."""
    query, key, value = _normal(form, rng)
    direction = rng.standard_normal(form.size)
    direction /= float((direction**2).sum() ** 0.5)
    query += 4 * direction
    key[:, :, 0] += 3 * form.size**0.5 * direction
    query[..., 3] *= 6
    key[..., 3] *= 6
    value[..., 3] *= 4
    value[:, :, 0] *= 0.1
    return query, key, value


def _rising(form: Form, rng: np.random.Generator) -> Tensors:
    """Scores that rise from key to key, to 100: an online softmax has to rescale all that it has at every block."""
    import numpy as np

    query, key, value = _normal(form, rng)
    direction = np.zeros(form.size)
    direction[0] = 1.0
    query += 10 * direction
    key += (np.linspace(0, 10, form.keys) * form.size**0.5)[:, None] * direction
    return query, key, value


def _huge(form: Form, rng: np.random.Generator) -> Tensors:
    """Values near the end of float16's range, scores in the hundreds."""
    query, key, value = _normal(form, rng)
    return 16 * query, 4 * key, 8000 * value.clip(-4, 4)


def _tiny(form: Form, rng: np.random.Generator) -> Tensors:
    """Small enough to be lost where an epsilon was added or a constant compared with, all normal numbers of float16."""
    query, key, value = _normal(form, rng)
    return query, key, 2.0**-6 * value


_NUMBERS: dict[str, Make] = {
    "normal": _normal,
    "peaky": _peaky,
    "structured": _structured,
    "rising": _rising,
    "huge": _huge,
    "tiny": _tiny,
}


def _numeric(form: Form, rng: np.random.Generator, dtype: str) -> tuple[Any, ...]:
    query, key, value = _NUMBERS[form.numbers](form, rng)
    if form.numbers == "tiny" and dtype != "float16":
        value = value * 2.0**-90
    return ((query, key, value),)


def _visible(form: Form, rng: np.random.Generator, dtype: str) -> tuple[Any, ...]:
    import numpy as np

    from conformance.criteria.attention_probes import one_hot_values

    lengths = form.lengths or (form.keys,) * form.batch
    value, repeated = one_hot_values(lengths, form.heads[1], form.keys, form.size)
    query = np.zeros((len(value), form.heads[0], form.queries, form.size))
    return (query, np.zeros(value.shape), value), None if form.lengths is None else repeated


def _ones(form: Form, rng: np.random.Generator, dtype: str) -> tuple[Any, ...]:
    query, key, value = _peaky(form, rng)
    value[...] = 1.0
    for row, length in enumerate(form.lengths or ()):
        value[row, :, length:] = 7.0
    return ((query, key, value),)


def _heads(form: Form, rng: np.random.Generator, dtype: str) -> tuple[Any, ...]:
    import numpy as np

    query, key, value = _normal(form, rng)
    value[...] = (np.arange(form.heads[1]) + 1.0)[:, None, None]
    return ((query, key, value),)


def _denormal(form: Form, rng: np.random.Generator, dtype: str) -> tuple[Any, ...]:
    query, key, value = _normal(form, rng)
    value[...] = 2.0**-18 if dtype == "float16" else 2.0**-130
    return ((0 * query, 0 * key, value),)


_MAKERS: dict[str, Callable[[Form, np.random.Generator, str], tuple[Any, ...]]] = {
    "numeric": _numeric,
    "visible": _visible,
    "ones": _ones,
    "heads": _heads,
    "denormal": _denormal,
}


@lru_cache(_KEPT)
def _pointed(forms: tuple[Form, ...], dtype: str, seed: int) -> Pointed:
    """Keys of plus and minus one, no two alike; a query is so many times its key that all others vanish."""
    import numpy as np

    from conformance.criteria.attention_math import visible
    from conformance.criteria.attention_probes import page_coded

    rng = np.random.default_rng([seed, len(forms)])
    calls, targets = [], []
    for form in forms:
        query, key, value = _normal(form, rng)
        key = np.where(key > 0, 1.0, -1.0)
        value[...] = page_coded(form.keys, form.size)
        seen = visible(AttentionCall(query, key, value, form.causal, lengths=form.lengths))
        group = form.heads[0] // form.heads[1]
        weights = rng.random((len(query), form.heads[0], form.queries, form.keys))
        chosen = np.where(seen[:, None], weights, -1.0).argmax(axis=3)
        factor = _separating_factor(key)
        if factor is None:
            continue
        of_heads = np.repeat(key, group, axis=1)
        query = factor * np.take_along_axis(of_heads, chosen[..., None], axis=2)
        calls.append(_call(form, (query, key, value), dtype=dtype))
        targets.append(chosen)
    return Pointed(tuple(calls), tuple(targets))


def _separating_factor(key: NDArray[np.float64]) -> float | None:
    """A power of two for queries, by which their own key's score is 40 above all others; None where keys repeat."""
    import numpy as np

    size = key.shape[-1]
    products = key @ key.swapaxes(-1, -2) - 2 * size * np.eye(key.shape[-2])
    gap = (size - products.max()) / size**0.5
    return float(2.0 ** np.ceil(np.log2(40 / gap))) if gap > 0 else None
