"""What the default run asks of each role, in plain transformers and torch: one entry a role in the table below."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from bare_company import EDITED, FORCED, Company, with_another_end
from bare_model import TOP, Asked, Rows, batches, logprobs
from bare_pictures import features, pictures, seen_decoded, seen_ended, seen_greedy, seen_prefilled
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
)

from suites import templates
from suites.inputs import classification, embedding, generation, rerank, reward, windowed

Texts = Callable[[], generation.GenerationInputs]

DRAWN, DRAWN_FROM, ROUNDS = 44, 20261130, 8


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors.float(), dim=-1)


def _embed(asked: Asked, dimensions: int | None = None, texts: Sequence[str] | None = None) -> Any:
    def last(output: Any, mask: torch.Tensor) -> torch.Tensor:
        where = mask.shape[1] - 1 - mask.flip(1).argmax(1)
        return _unit(output.last_hidden_state[torch.arange(len(mask)), where, :dimensions])

    def first(output: Any, mask: torch.Tensor) -> torch.Tensor:
        return _unit(output.last_hidden_state[torch.arange(len(mask)), mask.argmax(1), :dimensions])

    pool = {"last": last, "cls": first}[asked.parameters["pooling"]]
    return asked.once(asked.tokens(list(embedding.inputs().prompts if texts is None else texts)), pool)


def _embed_some(asked: Asked, rows: Sequence[int]) -> Any:
    return _embed(asked, texts=[embedding.inputs().prompts[row] for row in rows])


def _embed_edited(asked: Asked, rows: Sequence[int]) -> Any:
    return _embed(asked, texts=[with_another_end(embedding.inputs().prompts[row]) for row in rows])


def _shortened(asked: Asked) -> Any:
    return _embed(asked, min(asked.parameters["dimensions"]))


def _logits(output: Any, _: torch.Tensor) -> Any:
    return output.logits.float()


def _yes_no(asked: Asked) -> Any:
    return _yes_no_some(asked, range(len(rerank.inputs().pairs)))


def _yes_no_some(asked: Asked, some: Sequence[int]) -> Any:
    inputs = rerank.inputs()
    write = templates.RERANK[asked.parameters["template"]]
    rows = asked.tokens([write(inputs.instruction, *inputs.pairs[row]) for row in some])
    answers = [
        asked.tokenizer(asked.parameters[name], add_special_tokens=False)["input_ids"][0] for name in ("yes", "no")
    ]
    return asked.once(rows, lambda output, _: logprobs(output.logits[:, -1])[:, answers], "left", logits_to_keep=1)


def _pairs(asked: Asked) -> Any:
    return _score(asked, rerank.inputs().pairs)


def _pairs_some(asked: Asked, rows: Sequence[int]) -> Any:
    return _score(asked, [rerank.inputs().pairs[row] for row in rows])


def _pairs_edited(asked: Asked, rows: Sequence[int]) -> Any:
    pairs = [rerank.inputs().pairs[row] for row in rows]
    return _score(asked, [(query, with_another_end(document)) for query, document in pairs])


def _score(asked: Asked, pairs: Sequence[tuple[str, str]]) -> Any:
    return asked.once(asked.tokens([query for query, _ in pairs], [document for _, document in pairs]), _logits)


def _classify(asked: Asked) -> Any:
    return asked.once(asked.tokens(list(classification.inputs().texts)), _logits)


def _classify_some(asked: Asked, rows: Sequence[int]) -> Any:
    return asked.once(asked.tokens([classification.inputs().texts[row] for row in rows]), _logits)


def _reward(asked: Asked) -> Any:
    return _reward_some(asked, range(len(reward.inputs().conversations)))


def _reward_some(asked: Asked, rows: Sequence[int]) -> Any:
    conversations = [reward.inputs().conversations[row] for row in rows]
    texts = [asked.tokenizer.apply_chat_template(list(one), tokenize=False) for one in conversations]
    return asked.once(asked.tokens(texts, special=False), _logits)


def greedy(asked: Asked, inputs: Texts = generation.inputs) -> list[list[int]]:
    """Free text; `anchored` builds on it, as the run's does."""
    if "greedy" not in asked.known:
        rows = [asked.tokens([one])[0] for one in inputs().prompts]
        asked.known["greedy"] = asked.generate(rows, inputs().new_tokens)
    found: list[list[int]] = asked.known["greedy"]
    return found


def _anchored(asked: Asked, inputs: Texts = generation.inputs) -> list[list[int]]:
    return _set_back(asked, greedy(asked, inputs), lambda rows, left, _: asked.generate(rows, left))


def _seen_anchored(asked: Asked) -> list[list[int]]:
    return _set_back(asked, seen_greedy(asked), pictures(asked).generate)


def _set_back(
    asked: Asked, found: list[list[int]], generate: Callable[[Rows, int, list[int]], list[list[int]]]
) -> list[list[int]]:
    """Where a text leaves the reference's, it is set back on it and goes on."""
    told = asked.part("reference")["greedy"]
    prompts, wanted = told["prompt_token_ids"], told["token_ids"]
    ids = [list(one) for one in found]
    checked = [0] * len(ids)
    for _ in range(ROUNDS):
        open_rows = []
        for row, right in enumerate(wanted):
            both = range(checked[row], min(len(ids[row]), len(right)))
            at = next((at for at in both if ids[row][at] != right[at]), None)
            if at is not None:
                checked[row] = at + 1
                if at + 1 < len(right):
                    open_rows.append(row)
        if not open_rows:
            break
        left = max(len(wanted[row]) - checked[row] for row in open_rows)
        rows = [[*prompts[row], *wanted[row][: checked[row]]] for row in open_rows]
        more = generate(rows, left, open_rows)
        for row, tokens in zip(open_rows, more, strict=True):
            ids[row] = [*wanted[row][: checked[row]], *tokens[: len(wanted[row]) - checked[row]]]
    return ids


def _forced(asked: Asked) -> tuple[Rows, Rows, Any]:
    """The reference's tokens, and the candidates of every position: the forced one, the best, and some drawn."""
    told = asked.part("reference")["greedy"]
    longest = max(len(ids) for ids in told["token_ids"])
    drawn = random.Random(DRAWN_FROM).sample(range(len(asked.tokenizer)), DRAWN)
    candidates = np.zeros((len(told["token_ids"]), longest, 1 + TOP + DRAWN), dtype=np.int64)
    for row, ids in enumerate(told["token_ids"]):
        candidates[row, : len(ids), 0] = ids
        candidates[row, : len(ids), 1 : 1 + TOP] = told["top_ids"][row, : len(ids), :TOP]
    candidates[:, :, 1 + TOP :] = drawn
    return told["prompt_token_ids"], told["token_ids"], candidates


def _few_forced(asked: Asked, rows: Sequence[int], edited: int | None = None) -> tuple[Rows, Rows, Any]:
    """The first of those tokens, of some prompts; with `edited`, the second choices from that one on."""
    prompts, forced, candidates = _forced(asked)
    few = candidates[list(rows), :FORCED]
    texts = [list(forced[row][:FORCED]) for row in rows]
    if edited is not None:
        texts = [[*text[:edited], *few[at, edited:, 2].tolist()] for at, text in enumerate(texts)]
    return [prompts[row] for row in rows], texts, few


def _prefilled(asked: Asked, given: tuple[Rows, Rows, Any] | None = None) -> Any:
    prompts, forced, candidates = given or _forced(asked)
    longest = candidates.shape[1]
    found = np.empty(candidates.shape)
    for batch in batches([len(row) + longest for row in prompts]):
        rows = [[*prompts[i], *forced[i], *[prompts[i][0]] * (longest - len(forced[i]))] for i in batch]
        ids, mask, positions = asked.padded(rows, "left")
        output = asked.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, logits_to_keep=longest + 1
        )
        found[batch] = logprobs(output.logits[:, :-1]).gather(2, torch.from_numpy(candidates[batch])).numpy()
    return found


def _decoded(asked: Asked, given: tuple[Rows, Rows, Any] | None = None) -> Any:
    prompts, forced, candidates = given or _forced(asked)
    longest = candidates.shape[1]
    found = np.empty(candidates.shape)
    for batch in batches([len(row) for row in prompts], extra=longest):
        ids, mask, positions = asked.padded([prompts[i] for i in batch], "left")
        wanted = torch.from_numpy(candidates[batch])
        texts = [[*forced[i], *[prompts[i][0]] * (longest - len(forced[i]))] for i in batch]
        at, cache = positions[:, -1:], None
        for step in range(longest):
            output = asked.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions if step == 0 else at,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            found[batch, step] = logprobs(output.logits[:, -1]).gather(1, wanted[:, step]).numpy()
            ids = torch.tensor([[text[step]] for text in texts])
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            at, cache = at + 1, output.past_key_values
    return found


def _ended(asked: Asked, inputs: Texts = generation.inputs) -> list[list[int]]:
    prompts = [stop.prompt for stop in inputs().stops if stop.stop_word is None]
    return asked.generate([asked.tokens([prompt])[0] for prompt in prompts])


def _stopped(asked: Asked, inputs: Texts = generation.inputs) -> list[list[int]]:
    stops = [stop for stop in inputs().stops if stop.stop_word is not None]
    ids = [asked.tokenizer(f" {stop.stop_word}", add_special_tokens=False)["input_ids"] for stop in stops]
    return asked.generate([asked.tokens([stop.prompt])[0] for stop in stops], stops=[one[0] for one in ids])


def _greedy_company(prefilled: Callable[..., Any], decoded: Callable[..., Any]) -> tuple[Company, dict[str, Any]]:
    """The company of forced tokens, and what is asked beside it."""

    def read(asked: Asked, rows: Sequence[int], edited: int | None = None) -> Any:
        return prefilled(asked, _few_forced(asked, rows, edited), rows)

    def decode(asked: Asked, rows: Sequence[int]) -> Any:
        return decoded(asked, _few_forced(asked, rows), rows)

    company = Company("prefilled", read, tokens=FORCED)
    return company, {
        "future_edited": lambda asked: company.in_eights(asked, lambda a, rows: read(a, rows, EDITED)),
        "decoded_alone": lambda asked: np.concatenate([decode(asked, [row]) for row in company.rows(asked)]),
        "decoded_beside_longer": lambda asked: decode(asked, company.among_longer(asked)),
    }


@dataclass(frozen=True)
class Role:
    """The transformers class that loads the role's models, whether they decode, and an answer an observation."""

    auto: Any
    is_decoder: bool
    answers: Mapping[str, Callable[[Asked], Any]]
    rests_on: Mapping[str, str] = field(default_factory=dict)  # an observation that builds on another: its passes count


_EMBEDDED = Company("vectors", _embed_some, share=2)
_PAIRED = Company("scores", _pairs_some)
_TEXT, _BESIDE_TEXT = _greedy_company(
    lambda asked, given, _: _prefilled(asked, given), lambda asked, given, _: _decoded(asked, given)
)
_SEEN, _BESIDE_SEEN = _greedy_company(seen_prefilled, seen_decoded)


def _text_role(inputs: Texts) -> Role:
    return Role(
        AutoModelForCausalLM,
        True,
        {
            **_TEXT.answers(),
            "greedy": partial(greedy, inputs=inputs),
            "anchored": partial(_anchored, inputs=inputs),
            "prefilled": _prefilled,
            "decoded": _decoded,
            **_BESIDE_TEXT,
            "ended": partial(_ended, inputs=inputs),
            "stopped": partial(_stopped, inputs=inputs),
        },
        rests_on={"anchored": "greedy"},
    )


ROLES: Mapping[str, Role] = {
    "embedding.last": Role(AutoModel, True, {**_EMBEDDED.answers(), "vectors": _embed, "shortened": _shortened}),
    "embedding.encoder": Role(
        AutoModel,
        False,
        {
            **_EMBEDDED.answers(),
            "vectors": _embed,
            "far_edited": lambda asked: _EMBEDDED.in_eights(asked, _embed_edited),
        },
    ),
    "rerank.decoder": Role(
        AutoModelForCausalLM,
        True,
        {**Company("logprobs", _yes_no_some, share=8).answers(), "logprobs": _yes_no},
    ),
    "rerank.cross_encoder": Role(
        AutoModelForSequenceClassification,
        False,
        {
            **_PAIRED.answers(),
            "far_edited": lambda asked: _PAIRED.in_eights(asked, _pairs_edited),
            "scores": _pairs,
        },
    ),
    "classification": Role(
        AutoModelForSequenceClassification, True, {**Company("logits", _classify_some).answers(), "logits": _classify}
    ),
    "reward": Role(
        AutoModelForSequenceClassification, True, {**Company("rewards", _reward_some).answers(), "rewards": _reward}
    ),
    "generation": _text_role(generation.inputs),
    "generation.window": _text_role(windowed.inputs),
    "multimodal": Role(
        AutoModelForImageTextToText,
        True,
        {
            **_SEEN.answers(),
            "greedy": seen_greedy,
            "anchored": _seen_anchored,
            "prefilled": lambda asked: seen_prefilled(asked, _forced(asked)),
            "decoded": lambda asked: seen_decoded(asked, _forced(asked)),
            **_BESIDE_SEEN,
            "ended": seen_ended,
            "features": features,
        },
        rests_on={"anchored": "greedy"},
    ),
}


def role(name: str) -> Role:
    """The entry of a role. Raises LookupError, saying where one is to be added, for a role that has none."""
    if name not in ROLES:
        raise LookupError(
            f"the bare script knows no role {name!r}, only {', '.join(ROLES)}; add what it asks to ROLES in {__file__}"
        )
    return ROLES[name]
