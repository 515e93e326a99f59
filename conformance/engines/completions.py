"""Answers of /v1/completions and /v1/chat/completions as ids and logprobs: pure functions of JSON.

Ids are needed, as texts can be cut into tokens in several ways. OpenAI's own form has texts in their place; vLLM's
extensions give ids: `token_ids`, `prompt_token_ids`, `prompt_logprobs`, and tokens written as "token_id:17".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.engines.server import ServerFault
from conformance.runner import TokenIds

Logprobs = Mapping[int, float]
"""The logprobs of some ids at one position."""

_TOKEN_ID = re.compile(r"token_id:(\d{1,9})")


@dataclass(frozen=True)
class Completion:
    """One answer. `tokens[t]` was chosen with `steps[t]` known; `prompt[t]` is known of the prompt's token t, and
    empty for the first one and wherever it was not asked for. `prompt_ids` is None where the server does not give it.
    """

    tokens: TokenIds
    text: str
    finish_reason: str
    steps: tuple[Logprobs, ...]
    prompt_ids: TokenIds | None
    prompt: tuple[Logprobs, ...] = ()


def completions(answer: Mapping[str, Any], count: int, where: str) -> list[Completion]:
    """The answers to `count` prompts, in the order of the prompts. ServerFault says what is wrong with them."""
    choices = entries(answer, "choices", count, where)
    return [_completion(choice, f"{where}: choice {index}") for index, choice in enumerate(choices)]


def chat_completion(answer: Mapping[str, Any], where: str) -> Completion:
    """The answer to one conversation."""
    (choice,) = entries(answer, "choices", 1, where)
    message, logprobs = choice.get("message"), choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(content, list):
        raise ServerFault(f"{where}: the answer has no message with logprobs.content")
    tokens, steps = [], []
    for position, entry in enumerate(content):
        at = f"{where}: position {position}"
        top = _list(entry, "top_logprobs", at)
        steps.append({_id(each.get("token"), at): _number(each.get("logprob"), at) for each in [entry, *top]})
        tokens.append(_id(entry.get("token"), at))
    ids = choice.get("token_ids")
    if ids is not None and _ids(ids, f"{where}: token_ids") != tuple(tokens):
        raise ServerFault(f"{where}: token_ids are not the tokens of logprobs.content")
    return Completion(
        tuple(tokens),
        str(message.get("content") or ""),
        str(choice.get("finish_reason")),
        tuple(steps),
        _optional_ids(answer.get("prompt_token_ids"), f"{where}: prompt_token_ids"),
    )


def entries(answer: Mapping[str, Any], key: str, count: int, where: str) -> list[Mapping[str, Any]]:
    """The objects under `key`, one for each of `count` inputs, by their index. ServerFault for another number."""
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise ServerFault(f"{where}: there should be a list of objects under {key!r}")
    if len(found) != count:
        raise ServerFault(f"{where}: {len(found)} results under {key!r}, but {count} were asked for")
    indices = [each.get("index", at) for at, each in enumerate(found)]
    if sorted(map(str, indices)) != sorted(map(str, range(count))):
        raise ServerFault(f"{where}: the results under {key!r} have the indices {indices[:8]}, not 0 to {count - 1}")
    return [found[indices.index(at)] for at in range(count)]


def prompt_tokens(answer: Mapping[str, Any]) -> int | None:
    """How many tokens the server says that it read, for all prompts together."""
    usage = answer.get("usage")
    found = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def best(step: Logprobs, chosen: int, count: int) -> list[tuple[int, float]]:
    """The `count` best of a position, best first; of equal ones the chosen token first."""
    return sorted(step.items(), key=lambda pair: (-pair[1], pair[0] != chosen, pair[0]))[:count]


def _completion(choice: Mapping[str, Any], where: str) -> Completion:
    logprobs = choice.get("logprobs")
    tops = logprobs.get("top_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(logprobs, Mapping) or not isinstance(tops, list):
        raise ServerFault(f"{where}: there are no logprobs, though they were asked for")
    written = _list(logprobs, "tokens", where)
    own = _list(logprobs, "token_logprobs", where)
    if not len(written) == len(own) == len(tops):
        raise ServerFault(f"{where}: {len(written)} tokens, {len(own)} logprobs and {len(tops)} lists of top logprobs")
    given = choice.get("token_ids")
    tokens = [_id(token, where) for token in written] if given is None else list(_ids(given, f"{where}: token_ids"))
    if len(tokens) != len(own):
        raise ServerFault(f"{where}: logprobs for {len(own)} tokens, but there are {len(tokens)}")
    steps = []
    for position, (token, logprob, top) in enumerate(zip(tokens, own, tops, strict=True)):
        at = f"{where}: position {position}"
        if not isinstance(top, Mapping):
            raise ServerFault(f"{at}: there are no top logprobs")
        steps.append({**{_id(key, at): _number(each, at) for key, each in top.items()}, token: _number(logprob, at)})
    prompt_ids = _optional_ids(choice.get("prompt_token_ids"), f"{where}: prompt_token_ids")
    return Completion(
        tuple(tokens),
        str(choice.get("text", "")),
        str(choice.get("finish_reason")),
        tuple(steps),
        prompt_ids,
        _prompt_logprobs(choice.get("prompt_logprobs"), f"{where}: prompt_logprobs"),
    )


def _prompt_logprobs(found: Any, where: str) -> tuple[Logprobs, ...]:
    if found is None:
        return ()
    if not isinstance(found, list):
        raise ServerFault(f"{where} should be a list")
    positions: list[Logprobs] = []
    for position, entry in enumerate(found):
        at = f"{where}: position {position}"
        if entry is None and position == 0:
            positions.append({})
            continue
        if not isinstance(entry, Mapping) or not all(isinstance(each, Mapping) for each in entry.values()):
            raise ServerFault(f"{at}: there should be an object of ids")
        positions.append({_id(key, at): _number(each.get("logprob"), at) for key, each in entry.items()})
    return tuple(positions)


def _list(of: Mapping[str, Any], key: str, where: str) -> list[Any]:
    found = of.get(key) if isinstance(of, Mapping) else None
    if not isinstance(found, list):
        raise ServerFault(f"{where}: {key} should be a list")
    return found


def _ids(found: Any, where: str) -> TokenIds:
    if not isinstance(found, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in found):
        raise ServerFault(f"{where} should be a list of token ids")
    return tuple(found)


def _optional_ids(found: Any, where: str) -> TokenIds | None:
    return None if found is None else _ids(found, where)


def _id(token: Any, where: str) -> int:
    match = _TOKEN_ID.fullmatch(token) if isinstance(token, str) else None
    if match:
        return int(match[1])
    if isinstance(token, str) and token.isascii() and token.isdigit() and len(token) < 10 and "prompt" in where:
        return int(token)
    raise ServerFault(
        f"{where}: the text {str(token)[:40]!r} in place of a token id; the server should write token_id:N "
        "(vLLM: return_tokens_as_token_ids), as a text can be several tokens"
    )


def _number(value: Any, where: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise ServerFault(f"{where}: {str(value)[:40]!r} is no logprob")
