"""What comes before any number: the same prompt tokens, the whole answer, finite and not constant, run as requested."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from conformance.criteria.arrays import as_float64, not_finite
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.judgement import Figure, Judgement
from conformance.names import did_you_mean
from conformance.runner import (
    ClassLogits,
    Effective,
    ForcedLogprobs,
    Generations,
    Observation,
    Scalars,
    TokenIds,
    TokenLogprobs,
    Vectors,
    VisionEffective,
)

_AXES: dict[type[Observation], tuple[str, ...]] = {
    Vectors: ("prompts", "dimensions"),
    Scalars: ("prompts",),
    ClassLogits: ("prompts", "classes"),
    TokenLogprobs: ("prompts", "tokens"),
    ForcedLogprobs: ("prompts", "positions", "candidates"),
}
_AROUND = 3
_REASONS = ("stop", "length")


def same_prompt_tokens(observed: Observation, reference: Observation) -> Judgement:
    """Engine and reference read the same token ids for every prompt; the first difference is shown with its context."""
    name = "observed.same_prompt_tokens"
    mine, theirs = observed.prompt_token_ids, reference.prompt_token_ids
    faults = []
    if len(mine) != len(theirs):
        faults.append(f"the engine reports token ids for {len(mine)} prompts, the reference for {len(theirs)}")
    differing = [i for i, (a, b) in enumerate(zip_longest(mine, theirs)) if a is None or b is None or a != b]
    compared = [i for i in differing if i < min(len(mine), len(theirs))]
    if compared:
        faults.append(_first_difference(compared[0], mine[compared[0]], theirs[compared[0]]))
    doubts = [] if theirs and all(theirs) else ["the reference has no prompt, or a prompt without tokens"]
    measures = [
        Measure(Figure("prompts with other token ids", len(differing), 0.0), Decides.EXACT),
        Measure(Figure("prompts", len(theirs))),
        Measure(Figure("prompt tokens", sum(map(len, theirs)))),
    ]
    rows = {"prompt_lengths": np.array([len(ids) for ids in mine], dtype=np.int64)}
    return conclude(name, f"token ids of {len(theirs)} prompts", measures, rows=rows, faults=faults, doubts=doubts)


def _first_difference(prompt: int, mine: TokenIds, theirs: TokenIds) -> str:
    position = next(t for t, (a, b) in enumerate(zip_longest(mine, theirs)) if a != b)
    window = slice(max(0, position - _AROUND), position + _AROUND + 1)
    said = " and ".join(
        f"{who} {ids[position] if position < len(ids) else 'the end'} (of {len(ids)}; around it {list(ids[window])})"
        for who, ids in (("the engine reads", mine), ("the reference", theirs))
    )
    return f"prompt {prompt}, position {position}: {said}"


def same_length_limit(observed: Observation, reference: Observation, *, limit: int | None) -> Judgement:
    """Prompts longer than the model (`limit` tokens) are cut by the engine where the reference cuts them.

    Judged on the prompts that the reference cut to the limit, and on no prompt being longer than it. UNDERPOWERED
    where the model has no limit or no prompt reaches it.
    """
    name = "observed.same_length_limit"
    mine, theirs = observed.prompt_token_ids, reference.prompt_token_ids
    if len(mine) != len(theirs):
        return refuse(name, f"token ids for {len(mine)} prompts of the engine and {len(theirs)} of the reference")
    lengths = np.array([len(ids) for ids in mine], dtype=np.int64)
    at_limit = [i for i, ids in enumerate(theirs) if limit is not None and len(ids) >= limit]
    faults = [_first_difference(i, mine[i], theirs[i]) for i in at_limit if mine[i] != theirs[i]]
    measures = [
        Measure(Figure("prompts cut otherwise", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("prompts at the limit", len(at_limit), 1.0, "min", "none cut, none checked"), Decides.POWER),
    ]
    if limit is not None and len(mine):
        beyond = Figure("tokens beyond the limit", max(0, int(lengths.max()) - limit), 0.0, "max", "the model's limit")
        measures.append(Measure(beyond, Decides.EXACT, f"prompt {int(lengths.argmax())}"))
    compared = f"lengths of {len(theirs)} prompts, the limit {'none' if limit is None else limit}"
    return conclude(name, compared, measures, rows={"prompt_lengths": lengths}, faults=faults)


def is_complete(observation: Observation, *, count: int) -> Judgement:
    """As many results as prompts in every field, consistent shapes, every number finite, nothing constant.

    NaN is right only beyond a prompt's own length (Generations, and the tail of ForcedLogprobs). Results are constant
    where all prompts, though not all the same, have equal ones: embeddings, scores, logits or logprobs.
    TypeError for a kind of observation that is not in `runner`.
    """
    name = "observed.is_complete"
    kind = type(observation).__name__
    if count < 1:
        return refuse(name, f"{kind}: {count} prompts were asked; an empty batch shows nothing")
    if isinstance(observation, Generations):
        faults = generation_faults(observation, count)
        # A confident model may give every chosen token the logprob 0; its other tokens still differ.
        values = observation.logprobs if np.nan_to_num(observation.logprobs).any() else observation.top_logprobs
    elif isinstance(observation, (Vectors, Scalars, ClassLogits, TokenLogprobs, ForcedLogprobs)):
        faults = _array(observation, count)
        values = observation.values
    else:
        raise TypeError(
            f"{kind} is no observation that can be judged; {did_you_mean(kind, [k.__name__ for k in _AXES])}"
        )
    prompts = observation.prompt_token_ids
    if len(prompts) != count:
        faults.insert(0, f"token ids for {len(prompts)} prompts, but {count} were asked")
    if not all(prompts):
        faults.append(f"no token ids for {sum(not ids for ids in prompts)} of {len(prompts)} prompts")
    array = as_float64(values)
    rows = {} if isinstance(array, str) else {"x": array}
    if not faults and not isinstance(array, str) and len(set(prompts)) > 1 and _constant(array):
        faults.append(f"the results of all {count} prompts are equal, though the prompts differ")
    measures = [
        Measure(Figure("faults", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("prompts", count)),
    ]
    return conclude(name, f"{kind} for {count} prompts", measures, rows=rows, faults=faults)


def _array(observation: Vectors | Scalars | ClassLogits | TokenLogprobs | ForcedLogprobs, count: int) -> list[str]:
    axes = _AXES[type(observation)]
    values = as_float64(observation.values)
    if isinstance(values, str):
        return [values]
    if values.ndim != len(axes) or len(values) != count or 0 in values.shape:
        return [f"values have shape {list(values.shape)}, but must be [{', '.join(axes)}] with {count} prompts, none 0"]
    if isinstance(observation, ForcedLogprobs):
        empty = np.isnan(values).min(axis=2)
        tail = np.logical_and.accumulate(empty[:, ::-1], axis=1)[:, ::-1]
        unanswered = np.nonzero(tail[:, 0])[0]
        if len(unanswered):
            return [f"prompt {unanswered[0]} has no logprobs at all, only NaN ({len(unanswered)} such prompts)"]
        values = np.where(tail[:, :, None], 0.0, values)
    fault = not_finite(values)
    return [fault] if fault else []


def generation_faults(g: Generations, count: int) -> list[str]:
    """What is incomplete about generations for `count` prompts: one sentence a fault; see `is_complete`."""
    lengths = {
        "token_ids": len(g.token_ids),
        "texts": len(g.texts),
        "finish_reasons": len(g.finish_reasons),
    }
    faults = [
        f"{field} for {length} prompts, but {count} were asked" for field, length in lengths.items() if length != count
    ]
    faults += [f"prompt {i} has no tokens" for i, ids in enumerate(g.token_ids) if not ids]
    if count == 0:
        faults.append("an empty batch shows nothing")
    if faults:
        return faults
    longest = max(map(len, g.token_ids), default=0)
    for field, array, ndim in (
        ("logprobs", g.logprobs, 2),
        ("top_ids", g.top_ids, 3),
        ("top_logprobs", g.top_logprobs, 3),
    ):
        if array.ndim != ndim or array.shape[:2] != (count, longest) or 0 in array.shape:
            axes = f"{count} prompts, {longest} positions" + (", top tokens" if ndim == 3 else "")
            faults.append(f"{field} has shape {list(array.shape)}, but must be [{axes}], none of them 0")
    if not faults and g.top_ids.shape != g.top_logprobs.shape:
        faults.append(f"top_ids has shape {list(g.top_ids.shape)}, top_logprobs {list(g.top_logprobs.shape)}")
    faults += [
        f"prompt {i} has finish reason {reason!r}; {did_you_mean(reason, _REASONS)}"
        for i, reason in enumerate(g.finish_reasons)
        if reason not in _REASONS
    ]
    if faults:
        return faults
    own = np.arange(longest) < np.array([len(ids) for ids in g.token_ids])[:, None]
    for field, values in (("logprobs", g.logprobs), ("top_logprobs", g.top_logprobs)):
        wide = np.broadcast_to(own.reshape(own.shape + (1,) * (values.ndim - 2)), values.shape)
        fault = not_finite(np.where(wide, values, 0.0).astype(np.float64))
        if fault:
            faults.append(f"{field}: {fault}")
        if not np.isnan(values[~wide]).all():
            faults.append(f"{field}: numbers beyond a prompt's own length, where only NaN may stand")
    if (g.top_ids[own] < 0).any() or (g.top_ids[~own] != -1).any():
        faults.append("top_ids: must be token ids up to each prompt's own length, and -1 beyond it")
    return faults


def _constant(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bool:
    return bool(np.array_equal(values, np.broadcast_to(values[:1], values.shape), equal_nan=True))


def went_token_by_token(effective: Effective, *, tokens: int) -> Judgement:
    """The model made at least as many forward passes as there are tokens to decode, so none were read in one go."""
    name = "observed.went_token_by_token"
    if effective.evidence != "counted":  # then nothing but the engine's word says how it arrived at its answer
        figure = Figure("forward passes counted", 0)
        return conclude(name, f"decoding of {tokens} tokens, unseen", [Measure(figure)], rows={})
    figure = Figure("forward passes", effective.forwards, float(tokens), "min", "one pass for each token of a text")
    return conclude(name, f"decoding of {tokens} tokens", [Measure(figure, Decides.EXACT)], rows={})


@dataclass(frozen=True)
class VisionRequested:
    """What was requested of a vision tower; `kernels` and `layers` as in `ran_as_requested`."""

    attention: str
    kernels: Sequence[str]
    layers: int | None = None


def _matches(kernel: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(kernel, pattern) for pattern in patterns)


def ran_as_requested(
    effective: Effective,
    *,
    dtype: str,
    attention: str,
    kernels: Sequence[str],
    layers: int | None = None,
    vision: VisionRequested | None = None,
) -> Judgement:
    """Dtype and attention backends are those requested, and every attention call went to an expected kernel.

    `kernels` are the profile's expectation: names, or patterns as in fnmatch (case counts). The kernels seen must
    add up to layers x forwards, and in a vision tower to layers x sequences; none seen is a fault, because then
    nobody knows what ran. `layers` is the model's own number where it is known, so that an engine cannot leave one
    out of the account. `vision` is None for a model without a tower.
    """
    name = "observed.ran_as_requested"
    ran = effective.vision or VisionEffective("none", 0, 0)
    if vision is None and effective.vision is not None:
        return refuse(
            name,
            f"{ran.sequences} sequences are reported of a vision tower, but the model has none; where it has one, the "
            "catalogue says so: parameters = { vision = true }",
        )
    if effective.evidence == "undisclosed":
        return _undisclosed(name, effective, dtype=dtype, attention=attention, kernels=kernels)
    pairs = [("the dtype", effective.dtype, dtype), ("the attention backend", effective.attention, attention)]
    if vision:
        pairs.append(("the vision tower's attention backend", ran.attention, vision.attention))
    faults = [f"{what} was {found!r}, but {asked!r} was requested" for what, found, asked in pairs if found != asked]
    seen = {kernel: calls for kernel, calls in effective.kernels.items() if calls > 0}
    faults += [f"kernel {kernel!r} has count {calls}" for kernel, calls in effective.kernels.items() if calls < 1]
    if not seen:
        faults.append("no attention kernel was seen, so nothing shows what ran")
    expected = [*kernels, *(vision.kernels if vision else ())]
    faults += [
        f"kernel {kernel!r} ran {calls} times, but the profile expects {' or '.join(map(repr, expected)) or 'none'}"
        for kernel, calls in sorted(seen.items())
        if not _matches(kernel, expected)
    ]
    for what, found, known in (
        ("layers", effective.layers, layers),
        ("layers of the vision tower", ran.layers, vision.layers if vision else None),
    ):
        if known is not None and found != known:
            faults.append(f"{found} {what} were reported, but the model has {known}")
    if vision and effective.vision and ran.sequences < 1:
        faults.append(f"the vision tower is said to have seen {ran.sequences} sequences; it must be above 0")
    # A vision tower alone makes no pass through the text model.
    if effective.layers < 1 or (effective.forwards < 1 and not ran.sequences):
        faults.append(
            f"{effective.layers} layers and {effective.forwards} forwards were reported; both must be above 0"
        )
    calls = effective.layers * effective.forwards
    tower_calls = ran.layers * ran.sequences
    astray = abs(sum(seen.values()) - calls - tower_calls)
    source = f"{effective.layers} layers x {effective.forwards} forwards = {calls} attention calls, each of one kernel"
    if effective.evidence == "resolved":
        source = f"{effective.layers} layers, each of a class that the engine resolved; no call was counted"
    if tower_calls:
        source += f"; {ran.layers} layers x {ran.sequences} sequences = {tower_calls} in the vision tower"
    if vision:  # kernels that only one of the two may use show which of them it was
        text_only = sum(n for kernel, n in seen.items() if not _matches(kernel, vision.kernels))
        tower_only = sum(n for kernel, n in seen.items() if not _matches(kernel, kernels))
        astray = max(astray, text_only - calls, tower_only - tower_calls)
    measures = [
        Measure(Figure("attention calls unaccounted for", astray, 0.0, "max", source), Decides.EXACT),
        Measure(Figure("attention calls", sum(seen.values()))),
        Measure(Figure("different kernels", len(seen))),
    ]
    compared = f"what ran ({', '.join(f'{k} {c} times' for k, c in sorted(seen.items())) or 'no kernel'})"
    return conclude(name, compared, measures, rows={}, faults=faults)


def _undisclosed(name: str, effective: Effective, *, dtype: str, attention: str, kernels: Sequence[str]) -> Judgement:
    """Where an engine tells nobody what ran, the profile must say so too, and nothing else may be reported."""
    faults = [
        f"{what} is reported as {found!r}, but {asked!r} was requested"
        for what, found, asked in (
            ("the dtype", effective.dtype, dtype),
            ("the attention backend", effective.attention, attention),
        )
        if found != asked
    ]
    if kernels:
        expected = " or ".join(map(repr, kernels))
        faults.append(f"the engine does not tell what ran, but the profile expects {expected}; kernels = [] says so")
    if effective.kernels:
        faults.append(f"kernels are reported ({', '.join(sorted(effective.kernels))}) by an engine that tells of none")
    measures = [Measure(Figure("faults", len(faults), 0.0), Decides.EXACT)]
    return conclude(name, "what ran (the engine tells nobody)", measures, rows={}, faults=faults)
