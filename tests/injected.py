"""Few and cheap questions to the embedded models, asked of a clean runner and of one with a fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from replay import embedded

from conformance.execution.group import parameters
from conformance.runner import LoadRequest, Observation
from conformance.suite import Ask
from conformance.tokenization import Tokenizer

QUESTIONS = 6


def request(name: str, *, role: str = "", folder: Any = None, **changes: Any) -> LoadRequest:
    """What loads an embedded model."""
    model, suite = embedded()[name]
    settings = {"device": "cpu", "attention": "eager", "dtype": "float32", "parameters": parameters(model)}
    return LoadRequest(model=name, folder=str(folder or model.folder), role=role or suite.role, **(settings | changes))


def answers(runner: Any, name: str) -> dict[str, Observation]:
    """What the runner says to a few of the questions that the suite of the model `name` asks, ragged and short."""
    model, suite = embedded()[name]
    inputs = suite.inputs()
    task = suite.role.split(".")[0]
    if task == "embedding":
        prompts = [*_short(inputs.prompts), max(inputs.prompts, key=len)]
        found = {"vectors": runner.embed(prompts)}
        if "dimensions" in runner.request.parameters:
            found["shortened"] = runner.embed(prompts, dimensions=64)
        return found
    if suite.role == "rerank.cross_encoder":
        return {"scores": runner.score_pairs(sorted(inputs.pairs, key=lambda pair: len(pair[1]))[:QUESTIONS])}
    if suite.role == "rerank.decoder":
        from suites import rerank, templates

        write = templates.RERANK["qwen3-reranker"]
        prompts = _short([write(inputs.instruction, query, text) for query, text in inputs.pairs])
        ask: Any = Ask(runner, inputs, Tokenizer(model.folder), parameters(model))
        return {"logprobs": runner.token_logprobs(prompts, rerank.yes_and_no(ask))}
    if task == "classification":
        return {"logits": runner.classify(_short(inputs.prompts))}
    if task == "reward":
        return {"rewards": runner.reward(sorted(inputs.conversations, key=lambda turns: len(turns[0]["content"]))[:8])}
    return _texts(runner, inputs)


def differ(one: dict[str, Observation], other: dict[str, Observation], *, rtol: float = 1e-4) -> bool:
    """Whether any answer differs by more than rounding in float32."""
    return any(not _alike(one[name], other[name], rtol) for name in one)


def _texts(runner: Any, inputs: Any) -> dict[str, Observation]:
    pictures = {key: value for key, value in inputs.pictures.items() if value is not None}
    order = sorted(range(len(inputs.prompts)), key=lambda index: len(inputs.prompts[index]))
    if pictures:
        with_video = [index for index in order if pictures.get("videos", ((),) * len(order))[index]][:2]
        several = [index for index in order if len(pictures["images"][index]) > 1][:2]
        order = [*with_video, *several, *order[:2]]
    else:
        order = [*order[8:12], order[-1]]  # the shortest prompts are a few words
    chosen = {key: [value[index] for index in order] for key, value in pictures.items()}
    greedy = runner.generate([inputs.prompts[index] for index in order], max_tokens=24, **chosen)
    forced = [tuple(range(5, 17)) for _ in order]
    candidates = np.stack([np.arange(5, 25)[None, :].repeat(12, 0) for _ in order])
    found = {"greedy": greedy}
    for via in ("prefill", "decode"):
        found[via] = runner.score_tokens(greedy.prompt_token_ids, forced, candidates, via=via, **chosen)
    stops = [stop for stop in getattr(inputs, "stops", ()) if stop.stop_word is None][:2]
    if stops:
        found["ended"] = runner.generate([stop.prompt for stop in stops], max_tokens=64)
    if pictures:
        found["features"] = runner.vision_features([one for some in chosen["images"] for one in some][:3], [])
    return found


def _short(prompts: Sequence[str]) -> list[str]:
    return sorted(prompts, key=len)[2 : 2 + QUESTIONS]


def _alike(one: Any, other: Any, rtol: float) -> bool:
    for name, value in vars(one).items():
        if name == "effective":
            continue
        if isinstance(value, np.ndarray):
            there = getattr(other, name)
            if value.shape != there.shape or not np.allclose(value, there, rtol=rtol, atol=rtol, equal_nan=True):
                return False
        elif value != getattr(other, name):
            return False
    return True
