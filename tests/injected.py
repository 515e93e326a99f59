"""Few and cheap questions to the embedded models, asked of a clean runner and of one with a fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from replay import embedded

from conformance.execution.group import parameters
from conformance.runner import LoadRequest, Observation
from conformance.tokenization import Tokenizer

QUESTIONS = 6


def request(name: str, *, role: str = "", folder: Any = None, **changes: Any) -> LoadRequest:
    """What loads an embedded model."""
    model, suite = embedded()[name]
    settings = {"device": "cpu", "attention": "eager", "dtype": "float32", "parameters": parameters(model)}
    return LoadRequest(model=name, folder=str(folder or model.folder), role=role or suite.role, **(settings | changes))


def answers(runner: Any, name: str, *, longest: bool = False) -> dict[str, Observation]:
    """What the runner says to a few of the questions that the suite of the model `name` asks, ragged and short;
    for embedding also to the `longest`."""
    suite = embedded()[name][1]
    inputs = suite.inputs()
    task = suite.role.split(".")[0]
    if task == "embedding":
        capitals = min((text for text in inputs.prompts if text.lower() != text), key=len)
        prompts = [*_ragged(inputs.prompts), capitals, *[max(inputs.prompts, key=len)] * longest]
        found: dict[str, Observation] = {"vectors": runner.embed(prompts)}
        if "dimensions" in runner.request.parameters:
            found["shortened"] = runner.embed(prompts[:2], dimensions=64)
        return found
    if suite.role == "rerank.cross_encoder":
        return {"scores": runner.score_pairs(sorted(inputs.pairs, key=lambda pair: len(pair[1]))[::7][:QUESTIONS])}
    if suite.role == "rerank.decoder":
        from suites import templates

        write = templates.RERANK["qwen3-reranker"]
        prompts = _ragged([write(inputs.instruction, query, text) for query, text in inputs.pairs])
        yes_and_no = [
            Tokenizer(embedded()[name][0].folder).encode(runner.request.parameters[word])[0] for word in ("yes", "no")
        ]
        return {"logprobs": runner.token_logprobs(prompts, yes_and_no)}
    if task == "classification":
        return {"logits": runner.classify(_ragged(inputs.texts))}
    if task == "reward":
        by_length = sorted(inputs.conversations, key=lambda turns: len(turns[0]["content"]))
        return {"rewards": runner.reward(by_length[::9][:QUESTIONS])}
    return texts(runner, inputs)


def differ(one: dict[str, Observation], other: dict[str, Observation], *, rtol: float = 1e-6) -> bool:
    """Whether any answer differs by more than rounding in float32."""
    return any(not _alike(one[name], other[name], rtol) for name in one)


def texts(runner: Any, inputs: Any) -> dict[str, Observation]:
    """Greedy and forced text, endings, and what the vision tower says."""
    pictures = inputs.pictures
    order = sorted(range(len(inputs.prompts)), key=lambda index: len(inputs.prompts[index]))
    if pictures:
        video = next(index for index in order if any(len(video) > 2 for video in pictures["videos"][index]))
        several = next(index for index in order if len(pictures["images"][index]) > 1)
        order, tokens = [video, several], 4
    else:
        order, tokens = order[8:20:4], 18  # past the end of a page of 16
    chosen = {key: [value[index] for index in order] for key, value in pictures.items()}
    greedy = runner.generate([inputs.prompts[index] for index in order], max_tokens=tokens, **chosen)
    forced = [tuple(range(5, 5 + tokens)) for _ in order]
    candidates = np.arange(5, 25)[None, None, :].repeat(len(order), 0).repeat(tokens, 1)
    found: dict[str, Observation] = {"greedy": greedy}
    for via in ("prefill", "decode"):
        found[via] = runner.score_tokens(greedy.prompt_token_ids, forced, candidates, via=via, **chosen)
    if pictures:
        images = [one for some in pictures["images"] for one in some]
        wide = next(image for image in images if image.shape[0] != image.shape[1])
        found["features"] = runner.vision_features([wide, *images[:2]], [])
    return found


def endings(runner: Any, name: str) -> dict[str, Observation]:
    """Texts that end with the model's end token and with a stop token of the request."""
    stops = sorted(embedded()[name][1].inputs().stops, key=lambda stop: stop.tokens)
    ended = next(stop for stop in stops if stop.stop_word is None)
    stopped = next(stop for stop in stops if stop.stop_word is not None)
    ids = runner.tokenizer(f" {stopped.stop_word}")["input_ids"]
    return {
        "ended": runner.generate([ended.prompt], max_tokens=ended.tokens + 3),
        "stopped": runner.generate([stopped.prompt], max_tokens=stopped.tokens + 3, stop_token_ids=ids),
    }


def _ragged(prompts: Sequence[str]) -> list[str]:
    by_length = sorted(prompts, key=len)
    return by_length[3 : 3 + 2 * QUESTIONS : 2]


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
