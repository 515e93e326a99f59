"""Generated text: against itself, and against the reference up to the first difference."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.criteria.observed import generation_faults
from conformance.judgement import Figure, Judgement
from conformance.runner import Generations, TokenIds


def generation_is_consistent(
    g: Generations, *, max_tokens: int, end_token_ids: Sequence[int], decoded: Sequence[str]
) -> Judgement:
    """The output against itself: what any greedy generation fulfils, whatever the model.

    Finish reasons follow from the ids: "stop" where the last is an end token and none before it is, "length" where
    `max_tokens` came; where both hold, either. Every chosen token is in its own top k, is the best there (or ties with
    it), and has the logprob it has there. Top k are distinct and best first, no logprob is above 0, no position's
    probabilities sum to more than 1. `texts` equal `decoded`, the reference tokenizer's text of the ids without end
    tokens. UNDERPOWERED where the top k hold one token only.
    """
    name = "tokens.generation_is_consistent"
    count = len(decoded)
    faults = generation_faults(g, count)
    if faults:
        return refuse(name, f"{count} generations: {'; '.join(faults[:3])}.")
    for i in range(count):
        faults += [f"prompt {i}: {fault}" for fault in _ending(g, i, max_tokens, frozenset(end_token_ids))]
        faults += [f"prompt {i}, token {t}: {fault}" for t, fault in _choices(g, i)]
        if g.texts[i] != decoded[i]:
            faults.append(f"prompt {i}: the text is {g.texts[i]!r}, but its ids decode to {decoded[i]!r}")
    k = g.top_ids.shape[2]
    measures = [
        Measure(Figure("inconsistencies", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("generated tokens", sum(map(len, g.token_ids)))),
        Measure(Figure("top k", k, 2.0, "min", "one token alone is always the best"), Decides.POWER),
    ]
    rows = {"x": g.logprobs, "top_ids": g.top_ids, "top_logprobs": g.top_logprobs}
    return conclude(name, f"{count} generations, each against itself", measures, rows=rows, faults=faults)


def _ending(g: Generations, i: int, max_tokens: int, ends: frozenset[int]) -> list[str]:
    ids, reason = g.token_ids[i], g.finish_reasons[i]
    faults = []
    early = [t for t, token in enumerate(ids[:-1]) if token in ends]
    if early:
        faults.append(f"{len(ids) - 1 - early[0]} tokens after the end token {ids[early[0]]} at position {early[0]}")
    if len(ids) > max_tokens:
        faults.append(f"{len(ids)} tokens, but at most {max_tokens} were asked")
    if reason == "stop" and ids[-1] not in ends:
        faults.append(f"finish reason 'stop', but the last token {ids[-1]} is none of the end tokens {sorted(ends)}")
    if reason == "length" and len(ids) < max_tokens:
        faults.append(f"finish reason 'length', but only {len(ids)} of {max_tokens} tokens")
    return faults


def _choices(g: Generations, i: int) -> list[tuple[int, str]]:
    tolerance, mass = limits().tokens.self_tolerance.value, limits().tokens.mass_tolerance.value
    faults: list[tuple[int, str]] = []
    for t, token in enumerate(g.token_ids[i]):
        ids, logprobs = g.top_ids[i, t].tolist(), g.top_logprobs[i, t].astype(np.float64)
        own = float(g.logprobs[i, t])
        if len(set(ids)) != len(ids):
            faults.append((t, "an id stands twice in its top k"))
        if token not in ids:
            faults.append((t, f"the chosen token {token} is not in its own top {len(ids)} {ids}"))
        else:
            listed = float(logprobs[ids.index(token)])
            if abs(listed - own) > tolerance:
                faults.append((t, f"the chosen token {token} has logprob {own:.6g}, but {listed:.6g} in its top k"))
        if own < logprobs.max() - tolerance:
            best = ids[int(logprobs.argmax())]
            faults.append(
                (t, f"token {token} was chosen at {own:.6g}, but {best} has {logprobs.max():.6g}: not greedy")
            )
        if (np.diff(logprobs) > tolerance).any():
            faults.append((t, f"its top k are not best first: {np.round(logprobs, 4).tolist()}"))
        if max(own, float(logprobs.max())) > mass:
            faults.append((t, f"a logprob of {max(own, float(logprobs.max())):.6g} is a probability above 1"))
        elif np.exp(logprobs).sum() > 1 + mass:
            faults.append((t, f"the probabilities of its top k sum to {np.exp(logprobs).sum():.6g}, above 1"))
    return faults


def first_divergences(x_ids: Sequence[TokenIds], r_ids: Sequence[TokenIds]) -> list[int | None]:
    """Per prompt, the first position at which the ids differ or one of them ends; None where they are equal.

    ValueError where the numbers of prompts differ.
    """
    if len(x_ids) != len(r_ids):
        raise ValueError(f"{len(x_ids)} prompts of the engine and {len(r_ids)} of the reference; they must be as many")
    return [
        next((t for t, (a, b) in enumerate(zip_longest(mine, theirs)) if a != b), None)
        for mine, theirs in zip(x_ids, r_ids, strict=True)
    ]


def divergence_is_a_tie(*, x: Generations, r: Generations, sigma_gap: float) -> Judgement:
    """Free-running: where the engine's tokens first differ from the reference's, the reference was near a tie.

    Its gap there, r(own token) - r(engine's token), may be 8 sigma_gap, with `sigma_gap` the yardstick's error of such
    a gap in nats (`tokens.sigma_gap`). A token outside the reference's top k counts as rated like the last of them.
    Ending where the reference goes on, or going on where it ends, without such a tie is a fault; so is no token at
    all. How many prompts diverged, and where, is data. UNDERPOWERED with fewer than 32 prompts.
    ValueError where r or `sigma_gap` are at fault.
    """
    return _ties("tokens.divergence_is_a_tie", x, r, sigma_gap, every=False)


def every_divergence_is_a_tie(*, x: Generations, r: Generations, sigma_gap: float) -> Judgement:
    """Re-anchored: every token of x was chosen after the reference's own text, so each must be its token or a tie.

    As `divergence_is_a_tie`, but at every position, which is right only where x was set back on the reference's text
    after each divergence. Only the token ids of x are read.
    """
    return _ties("tokens.every_divergence_is_a_tie", x, r, sigma_gap, every=True)


def _ties(name: str, x: Generations, r: Generations, sigma_gap: float, *, every: bool) -> Judgement:
    limit = limits().tokens
    count = len(r.token_ids)
    wrong = generation_faults(r, count)
    if wrong or not (np.isfinite(sigma_gap) and sigma_gap >= 0):
        raise ValueError("; ".join(wrong) or f"sigma_gap={sigma_gap}, but must be finite and at least 0")
    if len(x.token_ids) != count:
        return refuse(name, f"the engine gave token ids for {len(x.token_ids)} prompts, the reference for {count}")
    allowed = limit.gap_sigma.value * sigma_gap
    faults: list[str] = []
    gaps: list[float] = []
    first, compared = np.full(count, -1), 0
    for i, (mine, theirs) in enumerate(zip(x.token_ids, r.token_ids, strict=True)):
        positions = [t for t in range(min(len(mine), len(theirs))) if mine[t] != theirs[t]][: None if every else 1]
        first[i] = positions[0] if positions else -1
        compared += len(theirs) if every or not positions else positions[0] + 1
        for t in positions:
            gaps.append(_gap(r, i, t, mine[t]))
            if gaps[-1] > allowed:
                faults.append(
                    f"prompt {i}, token {t}: the engine chose {mine[t]}, the reference {theirs[t]}, "
                    f"which it rates {gaps[-1]:.4g} nats higher: no tie"
                )
        if len(mine) < len(theirs) and (every or not positions):
            faults.append(f"prompt {i}: the engine ends after {len(mine)} of the reference's {len(theirs)} tokens")
        elif len(mine) > len(theirs) and (not positions or (every and positions[-1] != len(theirs) - 1)):
            faults.append(f"prompt {i}: the engine goes on after the reference's {len(theirs)} tokens")
    provenance = f"{limit.gap_sigma.value:g} sigma_gap of {sigma_gap:.4g} nats; {limit.gap_sigma.provenance}"
    greatest = Figure("greatest gap at a divergence, in nats", max(gaps, default=0.0), allowed, "max", provenance)
    measures = [
        Measure(greatest, Decides.EXACT),
        Measure(Figure("divergences that are no tie", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("divergences", len(gaps))),
        Measure(Figure("prompts that diverged", int((first >= 0).sum()))),
        Measure(Figure("tokens compared", compared)),
        Measure(Figure("prompts", count, limit.prompts.value, "min", limit.prompts.provenance), Decides.POWER),
    ]
    return conclude(name, f"tokens of {count} prompts", measures, rows={"divergence": first}, faults=faults)


def _gap(r: Generations, i: int, position: int, token: int) -> float:
    ids, logprobs = r.top_ids[i, position].tolist(), r.top_logprobs[i, position]
    rated = logprobs[ids.index(token)] if token in ids else logprobs.min()
    return float(r.logprobs[i, position] - rated)


def endings_agree(*, x: Generations, r: Generations, sigma_gap: float) -> Judgement:
    """Text that reaches the reference's end ends there: same length, same last token, same finish reason.

    A prompt whose text differs before is no evidence about endings (`divergence_is_a_tie` judges it), unless its
    difference is the end itself: a text that ends early. A last token that the reference rates within 8 `sigma_gap`
    of its own is a tie, and no evidence either. UNDERPOWERED where no text that reached its end stops there.
    ValueError where r is at fault.
    """
    name = "tokens.endings_agree"
    count = len(r.token_ids)
    wrong = generation_faults(r, count)
    if wrong:
        raise ValueError("; ".join(wrong))
    if len(x.token_ids) != count or len(x.finish_reasons) != count:
        given = f"token ids for {len(x.token_ids)} prompts and {len(x.finish_reasons)} finish reasons"
        return refuse(name, f"the engine gave {given}; the reference has {count}")
    faults, reached, stops = [], 0, 0
    for i, position in enumerate(first_divergences(x.token_ids, r.token_ids)):
        mine, theirs = x.token_ids[i], r.token_ids[i]
        if position is not None and position < min(len(mine), len(theirs)) - 1:
            continue
        tied = limits().tokens.gap_sigma.value * sigma_gap
        within = position is not None and position < min(len(mine), len(theirs))
        if position is not None and within and _gap(r, i, position, mine[position]) <= tied:
            continue
        reached += 1
        stops += r.finish_reasons[i] == "stop"
        given, right = (
            f"{len(ids)} tokens, the last {ids[-1] if ids else 'none'}, reason {reason!r}"
            for ids, reason in ((mine, x.finish_reasons[i]), (theirs, r.finish_reasons[i]))
        )
        if given != right:
            faults.append(f"prompt {i}: the engine's text has {given}; the reference's {right}")
    measures = [
        Measure(Figure("endings that differ", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("texts that reached their end", reached)),
        Measure(Figure("of them, texts that stop", stops, 1.0, "min", "none stops, none checked"), Decides.POWER),
    ]
    rows = {"lengths": np.array([len(ids) for ids in x.token_ids], dtype=np.int64)}
    return conclude(name, f"endings of {count} texts", measures, rows=rows, faults=faults)


def texts_are_known(*, texts: Sequence[str], known: Sequence[str | None]) -> Judgement:
    """Text i is `known[i]`, where one is known, to the letter.

    UNDERPOWERED where none is known, or several are and all are the same.
    """
    name = "tokens.texts_are_known"
    if len(texts) != len(known):
        return refuse(name, f"texts: the engine gave {len(texts)}, but {len(known)} were asked")
    pairs = [(i, text, right) for i, (text, right) in enumerate(zip(texts, known, strict=True)) if right is not None]
    faults = [f"prompt {i}: the text is {text!r}, but must be {right!r}" for i, text, right in pairs if text != right]
    different = len({right for _, _, right in pairs})
    measures = [
        Measure(Figure("wrong texts", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("known texts", len(pairs), 1.0, "min", "none known, none checked"), Decides.POWER),
        Measure(
            Figure(
                "different known texts",
                different,
                min(2.0, max(1.0, float(len(pairs)))),
                "min",
                "with one, a text repeated for every prompt would pass",
            ),
            Decides.POWER,
        ),
    ]
    return conclude(name, f"{len(pairs)} texts with a known answer", measures, rows={}, faults=faults)
