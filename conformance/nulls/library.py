"""The null library. Importable without torch: what a variation needs is imported when a loaded model is varied."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from conformance.names import UsageError, unknown
from conformance.nulls.null import ROUNDS_PROBABILITIES, ROUNDS_SCORES, Null

if TYPE_CHECKING:
    from conformance.nulls.runner import NullRunner

Vary = Callable[["NullRunner"], None]

SEEDS = (1, 2, 3, 4)
"""Of other prompts than the suites' own, whose seed is 0."""


def nulls() -> Mapping[str, Null]:
    """Every null by id, in a fixed order; the first is the target as it is."""
    return _BY_ID


def null(id: str) -> Null:
    """The null of this id; UsageError for another name."""
    if id not in _BY_ID:
        raise UsageError(unknown("null", id, _BY_ID))
    return _BY_ID[id]


def _kernel(**how: Any) -> Vary:
    """Attention by an emulated flash kernel; `how` are the fields of `flash.Kernel`."""

    def vary(runner: NullRunner) -> None:
        from conformance.nulls import flash

        flash.install(runner, flash.Kernel(**how))

    return vary


def _rotary(ulps: int) -> Vary:
    def vary(runner: NullRunner) -> None:
        from conformance.reference.runner import move_frequencies

        move_frequencies(runner.model, ulps)

    return vary


def _linear(splits: int) -> Vary:
    def vary(runner: NullRunner) -> None:
        from conformance.nulls import arithmetic

        arithmetic.split_linear(runner, splits)

    return vary


def _norm(wide: bool) -> Vary:
    def vary(runner: NullRunner) -> None:
        from conformance.nulls import arithmetic

        arithmetic.resummed_norms(runner, wide=wide)

    return vary


def _threads(count: int) -> Vary:
    def vary(runner: NullRunner) -> None:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(count)
        runner.undo(lambda: torch.set_num_threads(before))

    return vary


def _arrangement(name: str) -> Vary:
    def vary(runner: NullRunner) -> None:
        runner.arrangement = name

    return vary


def _more_padding(columns: int) -> Vary:
    def vary(runner: NullRunner) -> None:
        runner.extra_columns = columns

    return vary


def _other_side(runner: NullRunner) -> None:
    runner.tokenizer.padding_side = "right" if runner.tokenizer.padding_side == "left" else "left"


def _all_of(*each: Vary) -> Vary:
    def vary(runner: NullRunner) -> None:
        for one in each:
            one(runner)

    return vary


def _masks_are_tensors(_: Mapping[str, Any], __: str, attention: str) -> str | None:
    if attention in ("eager", "sdpa") or attention.startswith("sdpa:"):
        return None
    return f"{attention} is not handed a mask that an emulated kernel could read"


def _has_rotary(configuration: Mapping[str, Any], _: str, __: str) -> str | None:
    text = configuration.get("text_config") or configuration
    if any(key in text for key in ("rope_theta", "rope_parameters", "rope_scaling")):
        return None
    return "the model has no rotary embedding"


def _side_is_free(_: Mapping[str, Any], role: str, __: str) -> str | None:
    if role.partition(".")[0] in ("embedding", "classification", "reward"):
        return None
    return f"{role} reads its answer at one end of a row, so padding has to be at the other"


def _needs_both(configuration: Mapping[str, Any], role: str, attention: str) -> str | None:
    return _masks_are_tensors(configuration, role, attention) or _has_rotary(configuration, role, attention)


_EMULATED = functools.partial(Null, applies=_masks_are_tensors)
_FUSED = functools.partial(_EMULATED, precisions=ROUNDS_PROBABILITIES)

_LIBRARY = (
    Null("as-is", "The target as it is.", quick=True),
    Null("batch.1", "Prompts one at a time.", options={"batch_size": 1}, batch="unpadded"),
    Null("batch.8", "Batches of at most 8 prompts.", options={"batch_size": 8}, quick=True),
    Null("batch.64", "Batches of at most 64 prompts.", options={"batch_size": 64}),
    Null(
        "order.arrival",
        "Batches formed in the order of the prompts, not by length.",
        _arrangement("arrival"),
        batch="padded",
    ),
    Null(
        "order.reversed", "Batches formed from the last prompt to the first.", _arrangement("reversed"), batch="padded"
    ),
    Null("padding.side", "Batches padded on the other side.", _other_side, applies=_side_is_free, batch="padded"),
    Null(
        "padding.extra",
        "17 columns of padding more than the longest prompt needs.",
        _more_padding(17),
        batch="padded",
        quick=True,
    ),
    Null("threads.1", "Torch computes with 1 thread.", _threads(1)),
    Null("threads.2", "Torch computes with 2 threads.", _threads(2)),
    _EMULATED("kernel.tile-16", "A flash kernel with tiles of 16 keys.", _kernel(tile=16)),
    _EMULATED("kernel.tile-64", "A flash kernel with tiles of 64 keys.", _kernel(tile=64)),
    _EMULATED("kernel.tile-128", "A flash kernel with tiles of 128 keys.", _kernel(tile=128)),
    _EMULATED("kernel.splits-3", "Keys split in 3 parts, merged at the end.", _kernel(splits=3), quick=True),
    _EMULATED("kernel.splits-7", "Keys split in 7 parts, merged at the end.", _kernel(splits=7)),
    _EMULATED("kernel.reversed", "Tiles of keys from the last to the first.", _kernel(order="reversed")),
    _EMULATED("kernel.pairwise", "Tiles of keys merged two by two, as a tree.", _kernel(order="pairwise")),
    _EMULATED("kernel.p-float32", "Probabilities are not rounded.", _kernel(probabilities="float32")),
    _FUSED(
        "kernel.exp-polynomial",
        "exp by a polynomial with a relative error of 1e-4.",
        _kernel(exponential="polynomial"),
        quick=True,
    ),
    _FUSED("kernel.p-float16", "Probabilities rounded to float16.", _kernel(probabilities="float16")),
    _EMULATED(
        "kernel.rounded-scores",
        "Scores rounded to the served dtype, as eager attention does.",
        _kernel(rounded_scores=True),
        precisions=ROUNDS_SCORES,
    ),
    Null("rotary.up", "Rotary frequencies one ulp higher.", _rotary(1), applies=_has_rotary, quick=True),
    Null("rotary.down", "Rotary frequencies one ulp lower.", _rotary(-1), applies=_has_rotary),
    Null("linear.splits-2", "Linear layers summed in 2 parts in float32.", _linear(2)),
    Null("linear.splits-7", "Linear layers summed in 7 parts in float32.", _linear(7), quick=True),
    Null("norm.strided", "Norms' sums in another order.", _norm(wide=False), quick=True),
    Null("norm.wide", "Norms' sums in float64.", _norm(wide=True)),
    Null(
        "combined.device",
        "As another device may compute: split keys, linear layers and norms, frequencies one ulp up, batches of 8.",
        _all_of(_kernel(tile=128, splits=3), _linear(7), _norm(wide=False), _rotary(1)),
        options={"batch_size": 8},
        applies=_needs_both,
        quick=True,
    ),
    Null(
        "combined.fast",
        "The same with exp by a polynomial, frequencies one ulp down, and padding.",
        _all_of(_kernel(exponential="polynomial", order="pairwise"), _linear(2), _rotary(-1), _more_padding(3)),
        precisions=ROUNDS_PROBABILITIES,
        applies=_needs_both,
        batch="padded",
    ),
    *(Null(f"seed.{seed}", f"Prompts drawn from seed {seed}.", seed=seed) for seed in SEEDS),
)

_BY_ID: Mapping[str, Null] = MappingProxyType({each.id: each for each in _LIBRARY})
