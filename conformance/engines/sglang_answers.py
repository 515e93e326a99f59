"""From what SGLang returns to observations: pure functions of its answers, which are dictionaries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.engines.pooled import stacked
from conformance.engines.sglang_arguments import resolved
from conformance.runner import Effective, TokenIds, VisionEffective

if TYPE_CHECKING:
    from conformance.runner import Floats, Integers

Answer = Mapping[str, Any]


def complete(answers: Any, asked: int) -> list[Answer]:
    """SGLang's answers, one a prompt in their order; ValueError where there are more or fewer."""
    found = list(answers) if isinstance(answers, list) else [answers]
    if len(found) != asked:
        raise ValueError(f"SGLang returned {len(found)} answers, but {asked} prompts were asked")
    return found


def prompt_ids(answers: Iterable[Answer]) -> tuple[TokenIds, ...]:
    """The token ids that SGLang says it read; ValueError where it says none, or another count than ids."""
    found = []
    for row, answer in enumerate(answers):
        told = answer.get("prompt_token_ids") or answer["meta_info"].get("prompt_token_ids")
        if not told or not all(isinstance(each, (int, np.integer)) for each in told):
            raise ValueError(f"prompt {row}: SGLang says {str(told)[:80]!r} of its token ids, but ids were asked for")
        counted = answer["meta_info"].get("prompt_tokens")
        if counted is not None and counted != len(told):
            raise ValueError(f"prompt {row}: SGLang names {len(told)} token ids, but counts {counted}")
        found.append(tuple(int(each) for each in told))
    return tuple(found)


def cached_tokens(answers: Iterable[Answer]) -> int | None:
    """How many tokens of the prompts SGLang says that its cache had; None where it does not say so of each."""
    told = [answer["meta_info"].get("cached_tokens") for answer in answers]
    return None if None in told else sum(int(each) for each in told if each is not None)


def pooled(answers: Sequence[Answer]) -> Floats:
    """What was pooled of each prompt, float [n, width]; ValueError where the answers have different widths."""
    rows = [np.atleast_1d(np.asarray(answer["embedding"], np.float64)) for answer in answers]
    return stacked(rows, "SGLang")


def named_logprobs(answers: Sequence[Answer], tokens: Sequence[int]) -> Floats:
    """Logprobs of `tokens` at the first generated position, float [n, tokens]; ValueError where one is missing."""
    values = np.full((len(answers), len(tokens)), np.nan)
    for row, answer in enumerate(answers):
        reported = _positions(answer, "output_token_ids_logprobs", 1, f"prompt {row}")
        values[row] = _chosen(reported[0], tokens, f"prompt {row}, the next position")
    return values


def generated(answers: Sequence[Answer], top_k: int) -> dict[str, Any]:
    """Ids, texts, finish reasons and logprobs of `Generations`, but the prompts'.

    ValueError where a position has no logprob of the generated token, or fewer than `top_k` others.
    """
    ids = tuple(tuple(int(token) for token in answer["output_ids"]) for answer in answers)
    shape = (len(ids), max(map(len, ids), default=0))
    logprobs = np.full(shape, np.nan)
    top_ids = np.full((*shape, top_k), -1, dtype=np.int64)
    top_logprobs = np.full((*shape, top_k), np.nan)
    for row, (tokens, answer) in enumerate(zip(ids, answers, strict=True)):
        own = _positions(answer, "output_token_logprobs", len(tokens), f"prompt {row}")
        best = _positions(answer, "output_top_logprobs", len(tokens), f"prompt {row}") if top_k else [()] * len(tokens)
        for at, (token, reported, others) in enumerate(zip(tokens, own, best, strict=True)):
            place = f"prompt {row}, position {at}"
            logprobs[row, at] = _chosen([reported], [token], place)[0]
            if len(others or ()) < top_k:
                raise ValueError(f"{place}: SGLang returned {len(others or ())} logprobs, but {top_k} were asked for")
            ordered = sorted(others, key=lambda each: -each[0])[:top_k]
            top_ids[row, at] = [int(each[1]) for each in ordered]
            top_logprobs[row, at] = [float(each[0]) for each in ordered]
    return {
        "token_ids": ids,
        "texts": tuple(str(answer["text"]) for answer in answers),
        "finish_reasons": tuple(_finish(answer, row) for row, answer in enumerate(answers)),
        "logprobs": logprobs,
        "top_ids": top_ids,
        "top_logprobs": top_logprobs,
    }


def prefilled(answers: Sequence[Answer], forced: Sequence[Sequence[int]], candidates: Integers) -> Floats:
    """Logprobs of the candidates of prompts that end with `forced` tokens, float [n, positions, candidates].

    SGLang reports from the position before the first forced token on, and nothing at that one, which has no
    distribution before it. ValueError where a position or one of its candidates is missing.
    """
    values = np.full(candidates.shape, np.nan)
    for row, (answer, tokens) in enumerate(zip(answers, forced, strict=True)):
        place = f"prompt {row}"
        own = _positions(answer, "input_token_logprobs", len(tokens) + 1, place)[1:]
        chosen = _positions(answer, "input_token_ids_logprobs", len(tokens) + 1, place)[1:]
        for at, (token, mine, reported) in enumerate(zip(tokens, own, chosen, strict=True)):
            _chosen([mine], [token], f"{place}, forced token {at}")
            values[row, at] = _chosen(reported, candidates[row, at].tolist(), f"{place}, forced token {at}")
    return values


def decoded(lines: Iterable[str], forced: Sequence[Sequence[int]], candidates: Integers) -> Floats:
    """The same from the lines that `sglang_rows.Forced` wrote; ValueError where a position is missing."""
    values = np.full(candidates.shape, np.nan)
    seen = set()
    for line in lines:
        row, at, found = json.loads(line)
        values[row, at] = found
        seen.add((row, at))
    wanted = {(row, at) for row, tokens in enumerate(forced) for at in range(len(tokens))}
    if seen != wanted:
        row, at = min(seen ^ wanted)
        raise ValueError(
            f"prompt {row}, forced token {at}: there are logits for {len(seen & wanted)} of {len(wanted)} forced tokens"
        )
    return values


def replays_graphs(arguments: Mapping[str, Any]) -> bool:
    """Whether SGLang computes steps by replaying captured graphs, from its server arguments as it resolved them."""
    return arguments.get("device") != "cpu" and not arguments.get("disable_cuda_graph")


def effective(
    calls: Iterable[str], arguments: Mapping[str, Any], layers: int, answers: Sequence[Answer], tower: int = 0
) -> Effective:
    """What ran, from the lines that `sglang_watch` wrote since the question was asked; since the start, for graphs.

    `arguments` are the server arguments as SGLang resolved them, `layers` those of the model, `tower` those of its
    vision tower. Each rank of several counts its own calls; they are counted together.
    """
    lines = [json.loads(line) for line in calls]
    seen = [line for line in lines if "layer" in line]
    pictured = [line for line in lines if "tower" in line]
    attention, dtype = resolved(arguments)
    is_replayed = replays_graphs(arguments)
    first = min((each["layer"] for each in seen), default=0)
    by_layer = {(each["layer"], str(each["kernel"])): None for each in seen}
    kernels = [kernel for _, kernel in by_layer] if is_replayed else [str(each["kernel"]) for each in seen]
    vision = None
    if pictured:
        names = "+".join(sorted({str(each["tower"]) for each in pictured}))
        vision = VisionEffective(names, tower, len(pictured) // max(tower, 1))
    return Effective(
        dtype="+".join(sorted({str(each["dtype"]) for each in lines})) or dtype,
        attention=attention,
        kernels=dict(Counter([*kernels, *(str(each["kernel"]) for each in pictured)])),
        layers=layers,
        forwards=1 if is_replayed else sum(each["layer"] == first for each in seen),
        vision=vision,
        evidence="resolved" if is_replayed else "counted",
        cached_tokens=cached_tokens(answers),
    )


def _finish(answer: Answer, row: int) -> str:
    reason = answer["meta_info"]["finish_reason"]
    kind = str(reason["type"] if isinstance(reason, Mapping) else reason)
    if kind not in ("stop", "length"):
        raise ValueError(f"prompt {row}: SGLang ended it with {reason!r}")
    return kind


def _positions(answer: Answer, name: str, count: int, place: str) -> Sequence[Any]:
    found: Sequence[Any] = answer["meta_info"].get(name) or ()
    if len(found) != count:
        raise ValueError(f"{place}: SGLang returned {name} for {len(found)} positions, but {count} were asked for")
    return found


def _chosen(reported: Sequence[Any] | None, tokens: Sequence[int], place: str) -> list[float]:
    """The logprobs of `tokens` among entries (logprob, id, text); ValueError where one is missing."""
    table = {int(each[1]): each[0] for each in reported or ()}
    for token in tokens:
        if table.get(token) is None:
            raise ValueError(f"{place}: SGLang returned no logprob of token {token}, only of {sorted(table)[:8]}")
    return [float(table[token]) for token in tokens]
