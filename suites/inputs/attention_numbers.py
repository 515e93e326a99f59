"""Numbers of attention calls: those that show which keys were seen, and those that show what rounding does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from conformance.runner import AttentionCall

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from suites.inputs.attention_forms import Form

    Make = Callable[["Form", np.random.Generator], "Tensors"]
    Tensors = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

_KEPT = 3
"""Sets of calls that are kept: an observation and its promises make the same ones, and all together are 200 MB."""


@dataclass(frozen=True)
class Pointed:
    """Calls whose queries point at one key each: `targets[i]` is int [batch, heads, queries] of call i."""

    calls: tuple[AttentionCall, ...]
    targets: tuple[NDArray[Any], ...]


@lru_cache(_KEPT)
def made(forms: tuple[Form, ...], kind: str, dtype: str, seed: int) -> tuple[AttentionCall, ...]:
    """The calls of these forms, with numbers of a kind: numeric (as the forms say), visible, ones, heads, denormal."""
    import numpy as np

    rng = np.random.default_rng([seed, len(kind), len(forms)])
    return tuple(_call(form, *_MAKERS[kind](form, rng, dtype), dtype=dtype) for form in forms)


def _call(form: Form, tensors: Tensors, lengths: tuple[int, ...] | None = None, *, dtype: str) -> AttentionCall:
    import numpy as np

    from conformance.criteria.rounding import rounded

    query, key, value = (rounded(each, dtype).astype(np.float32) for each in tensors)
    lengths = form.lengths if lengths is None else lengths
    return AttentionCall(query, key, value, form.causal, form.scale, form.window, form.softcap, lengths, form.page_size)


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
    if form.page_size is not None:  # so that keys of another row show as others than the row's own
        value = np.stack([np.roll(each, row, axis=-1) for row, each in enumerate(value)])
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
def pointed(forms: tuple[Form, ...], dtype: str, seed: int) -> Pointed:
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
