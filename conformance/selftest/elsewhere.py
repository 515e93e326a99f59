"""The rules in use elsewhere, each applied to the very numbers that a suite judged: would it have raised an alarm?

Elsewhere the other side is the same model in the served dtype; here it is the reference r, in fp64, which is kinder
to these rules, as no rounding of the other side is added to the engine's. Sources are in `Rule.source`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Outputs:
    """What one promise compared: engine x and reference r, float64 [n, ...], n prompts.

    `kind` is the criterion that judged them ("vector.agrees"), `role` the model's. `eager` is what the same model
    answers in the same dtype with eager attention, None where that is not known. Of forced logprobs
    ([n, positions, candidates]: the forced token, the reference's best 20, others) `forced` [n, positions] marks the
    positions that count.
    """

    kind: str
    role: str
    dtype: str
    x: Numbers
    r: Numbers
    eager: Numbers | None = None
    forced: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Rule:
    """One rule: `alarms(outputs)` is True where it fails them, None where it says nothing of such outputs."""

    id: str
    description: str
    source: str
    alarms: Callable[[Outputs], bool | None]


_VECTORS, _SCORES, _CLASSES, _LOGPROBS = "vector.agrees", "score.agrees", "classes.agrees", "tokens.logprobs_agree"
_COMPARED = (_VECTORS, _SCORES, _CLASSES, _LOGPROBS, "vision.features_agree", "attention.agrees")
"""Criteria whose rows are an engine's numbers beside the reference's."""

_ALLCLOSE = {"float32": (1e-6, 1e-4), "float16": (5e-3, 5e-3), "bfloat16": (1e-2, 1e-2)}  # dtype -> atol, rtol
_ROWS_THAT_MUST_MATCH = 0.8
_TOP = 5
_FUDGE_FLOOR = 1e-5


def is_compared(kind: str) -> bool:
    """Whether rules elsewhere have something to say of what this criterion judged."""
    return kind in _COMPARED


def cosine(tolerance: float) -> Callable[[Outputs], bool | None]:
    """|cos - 1| of any embedding over the tolerance."""

    def alarms(of: Outputs) -> bool | None:
        if of.kind != _VECTORS:
            return None
        norms = np.linalg.norm(of.x, axis=1) * np.linalg.norm(of.r, axis=1)
        cosines = (of.x * of.r).sum(axis=1) / np.where(norms > 0, norms, 1.0)
        return bool((np.abs(cosines - 1) > tolerance).any())

    return alarms


def rerank_score(of: Outputs) -> bool | None:
    """Any score further off than 1e-2: a decoder's as P(yes), a cross-encoder's as the raw logit."""
    if of.kind != _SCORES or not of.role.startswith("rerank"):
        return None
    x, r = of.x, of.r
    if of.role == "rerank.decoder":  # logprobs of yes, or log-odds
        probability = np.exp if (r <= 0).all() else _probability
        x, r = probability(x), probability(r)
    return bool((np.abs(x - r) > 1e-2).any())


def class_probability(of: Outputs) -> bool | None:
    """Any class probability further off than 5e-2, or another top class."""
    if of.kind != _CLASSES:
        return None
    x, r = _softmax(of.x), _softmax(of.r)
    return bool((np.abs(x - r) > 5e-2).any() or (x.argmax(axis=1) != r.argmax(axis=1)).any())


def reward(of: Outputs) -> bool | None:
    """Any reward further off than 1.5e-1."""
    if of.kind != _SCORES or of.role != "reward":
        return None
    return bool((np.abs(of.x - of.r) > 1.5e-1).any())


def top_containment(of: Outputs) -> bool | None:
    """At a prompt's first differing choice, either side's token is not among the other's best five."""
    if of.kind != _LOGPROBS or of.forced is None:
        return None
    for x, r, forced in zip(of.x, of.r, of.forced, strict=True):
        for engine, reference in zip(x[forced], r[forced], strict=True):
            mine, theirs = int(engine.argmax()), int(reference.argmax())
            if engine[mine] > engine[theirs]:  # one token may stand in two columns
                mine_there = int((reference > reference[mine]).sum())
                theirs_here = int((engine > engine[theirs]).sum())
                if max(mine_there, theirs_here) >= _TOP:
                    return True
                break
    return False


def times_eager(factor: float, floor: float = 0.0) -> Callable[[Outputs], bool | None]:
    """The greatest error over `factor` times that of the same model, in the same dtype, with eager attention."""

    def alarms(of: Outputs) -> bool | None:
        if of.eager is None:
            return None
        return bool(np.abs(of.x - of.r).max() > max(floor, factor * np.abs(of.eager - of.r).max()))

    return alarms


def allclose(share: float) -> Callable[[Outputs], bool | None]:
    """Fewer than this share of the rows (prompts) are close, every number of them, by the dtype's tolerances."""

    def alarms(of: Outputs) -> bool | None:
        atol, rtol = _ALLCLOSE[of.dtype]
        close = np.isclose(of.x, of.r, rtol=rtol, atol=atol).reshape(len(of.x), -1).all(axis=1)
        return bool(close.mean() < share)

    return alarms


_SGLANG = "SGLang, test/registered/xpu (PR #35072)"
_TRANSFORMERS = "transformers, tests/test_modeling_common.py, eager against sdpa"

RULES: tuple[Rule, ...] = (
    Rule("cosine-1e-3", "cosine of embeddings within 1e-3", f"{_SGLANG}; vLLM check_embeddings_close", cosine(1e-3)),
    Rule("cosine-1e-2", "cosine of embeddings within 1e-2", "vLLM, tests/models/language/pooling", cosine(1e-2)),
    Rule("score-1e-2", "rerank scores within 1e-2", _SGLANG, rerank_score),
    Rule("class-5e-2", "class probabilities within 5e-2, and the same top class", _SGLANG, class_probability),
    Rule("reward-1.5e-1", "rewards within 1.5e-1", _SGLANG, reward),
    Rule(
        "top-5-containment",
        "at the first differing token, each side's among the other's best five",
        "vLLM, check_logprobs_close",
        top_containment,
    ),
    Rule("2x-eager", "at most twice the greatest error of same-dtype eager", "FlashAttention 2", times_eager(2)),
    Rule(
        "5x-eager",
        "at most five times the greatest error of same-dtype eager, or 1e-5",
        "torch, test_transformers.py, scaled_dot_product_attention",
        times_eager(5, _FUDGE_FLOOR),
    ),
    Rule("allclose", "every number close, by the dtype's tolerances", _TRANSFORMERS, allclose(1.0)),
    Rule("allclose-80%", "four fifths of the rows close", _TRANSFORMERS, allclose(_ROWS_THAT_MUST_MATCH)),
)


def rows_to_outputs(kind: str, role: str, dtype: str, rows: Any, eager: Numbers | None) -> Outputs | None:
    """The outputs behind a judgement's rows; None where there is nothing that rules elsewhere compare."""
    if not is_compared(kind) or "x" not in rows or "r" not in rows or dtype not in _ALLCLOSE:
        return None
    return Outputs(
        kind,
        role,
        dtype,
        np.asarray(rows["x"], np.float64),
        np.asarray(rows["r"], np.float64),
        eager if eager is not None and eager.shape == np.shape(rows["r"]) else None,
        rows.get("forced"),
    )


def _probability(logits: Numbers) -> Numbers:
    found: Numbers = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    return found


def _softmax(logits: Numbers) -> Numbers:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Numbers = powers / powers.sum(axis=1, keepdims=True)
    return found
