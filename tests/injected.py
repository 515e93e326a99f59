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


def answers(runner: Any, name: str) -> dict[str, Observation]:
    """What the runner says to a few of the questions that the suite of the model `name` asks, ragged and short."""
    model, suite = embedded()[name]
    inputs = suite.inputs()
    task = suite.role.split(".")[0]
    if task == "embedding":
        capitals = min((text for text in inputs.prompts if text.lower() != text), key=len)
        prompts = [*_short(inputs.prompts), capitals, max(inputs.prompts, key=len)]
        found = {"vectors": runner.embed(prompts)}
        if "dimensions" in runner.request.parameters:
            found["shortened"] = runner.embed(prompts, dimensions=64)
        return found
    if suite.role == "rerank.cross_encoder":
        return {"scores": runner.score_pairs(sorted(inputs.pairs, key=lambda pair: len(pair[1]))[:QUESTIONS])}
    if suite.role == "rerank.decoder":
        from suites import templates

        write = templates.RERANK["qwen3-reranker"]
        prompts = _short([write(inputs.instruction, query, text) for query, text in inputs.pairs])
        yes_and_no = [Tokenizer(model.folder).encode(runner.request.parameters[word])[0] for word in ("yes", "no")]
        return {"logprobs": runner.token_logprobs(prompts, yes_and_no)}
    if task == "classification":
        return {"logits": runner.classify(_short(inputs.texts))}
    if task == "reward":
        return {"rewards": runner.reward(sorted(inputs.conversations, key=lambda turns: len(turns[0]["content"]))[:8])}
    return _texts(runner, inputs)


def differ(one: dict[str, Observation], other: dict[str, Observation], *, rtol: float = 1e-6) -> bool:
    """Whether any answer differs by more than rounding in float32."""
    return any(not _alike(one[name], other[name], rtol) for name in one)


def _texts(runner: Any, inputs: Any) -> dict[str, Observation]:
    pictures = inputs.pictures
    order = sorted(range(len(inputs.prompts)), key=lambda index: len(inputs.prompts[index]))
    if pictures:
        video = next(index for index in order if pictures["videos"][index])
        several = next(index for index in order if len(pictures["images"][index]) > 1)
        order, tokens = [video, several], 6
    else:
        order, tokens = order[8:20:4], 20
    chosen = {key: [value[index] for index in order] for key, value in pictures.items()}
    greedy = runner.generate([inputs.prompts[index] for index in order], max_tokens=tokens, **chosen)
    forced = [tuple(range(5, 5 + tokens)) for _ in order]
    candidates = np.arange(5, 25)[None, None, :].repeat(len(order), 0).repeat(tokens, 1)
    found: dict[str, Observation] = {"greedy": greedy}
    for via in ("prefill", "decode"):
        found[via] = runner.score_tokens(greedy.prompt_token_ids, forced, candidates, via=via, **chosen)
    for stop in getattr(inputs, "stops", ()):
        if (found_as := f"ended, stop word {stop.stop_word is not None}") not in found and stop.tokens < 40:
            ids = [] if stop.stop_word is None else runner.tokenizer(" " + stop.stop_word)["input_ids"]
            found[found_as] = runner.generate([stop.prompt], max_tokens=48, stop_token_ids=ids)
    if pictures:
        images = [one for some in pictures["images"] for one in some]
        wide = next(image for image in images if image.shape[0] != image.shape[1])
        found["features"] = runner.vision_features([wide, *images[:2]], [])
    return found


def _short(prompts: Sequence[str]) -> list[str]:
    by_length = sorted(prompts, key=len)
    return by_length[: 3 * QUESTIONS : 3]  # ragged, so that there is padding


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
