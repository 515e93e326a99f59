"""How completions are asked of a server: greedily, in batches, with the logprobs that are wanted.

A server gives a few best tokens of a position and may cap how many; of named ids it gives logprobs only where it has
vLLM's `logprob_token_ids`, at most NAMED of them, and only of tokens that it generates. So forced tokens are read in
two steps. What the best tokens cover comes from the prompt's own logprobs, in one pass over prompt and continuation,
or from the server's greedy text as far as that is the forced one. What is left is asked for by name: for a prefill one
generated token after each prefix; for decode, the same text again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.engines.completions import Completion, Logprobs, completions, prompt_tokens
from conformance.engines.server import Refused, Server, ServerFault
from conformance.runner import NotSupported, TokenIds

if TYPE_CHECKING:
    from conformance.runner import Floats, Integers

PATH = "/v1/completions"
NAMED = 128
"""vLLM takes at most so many `logprob_token_ids`."""
BEST = (20, 5)
"""How many best tokens are asked for: vLLM's default cap, and OpenAI's."""
RETURNS = 16
"""So often greedy text that leaves the forced one is set back on it."""

Prompts = Sequence[Sequence[int] | str]


class Asker:
    """Asks one server for completions of one model."""

    def __init__(self, server: Server, model: str, batch_size: int) -> None:
        self.server, self.model, self.batch_size = server, model, batch_size
        self.most = BEST[0]

    @property
    def names_ids(self) -> bool:
        """Whether logprobs of named ids can be asked for."""
        return self.server.offer.takes(PATH, "logprob_token_ids") is not False

    def greedy(
        self,
        prompts: Prompts,
        *,
        max_tokens: int,
        named: Sequence[int] = (),
        of_prompt: bool = False,
        stops: Sequence[int] = (),
    ) -> list[Completion]:
        """The greedy continuations, `max_tokens` at most, in batches.

        Each step has the logprobs of the best tokens or, where ids are `named`, theirs; with `of_prompt` the prompt's
        tokens have those of the best and their own.
        """
        found: list[Completion] = []
        for start in range(0, len(prompts), self.batch_size):
            batch = prompts[start : start + self.batch_size]
            answer = self._post(batch, max_tokens=max_tokens, named=named, of_prompt=of_prompt, stops=stops)
            found += self._checked(batch, answer)
        return found

    def _post(
        self, batch: Prompts, *, max_tokens: int, named: Sequence[int], of_prompt: bool, stops: Sequence[int]
    ) -> Mapping[str, Any]:
        takes = self.server.offer.takes
        if of_prompt and takes(PATH, "prompt_logprobs") is False:
            raise NotSupported(f"the server takes no prompt_logprobs at {PATH}, so it does not tell those of a prompt")
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": [each if isinstance(each, str) else list(map(int, each)) for each in batch],
            "max_tokens": max_tokens,
            "temperature": 0,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if takes(PATH, "repetition_penalty"):  # or a server's own default would hold
            body["repetition_penalty"] = 1
        if stops:
            body["stop_token_ids"] = [int(stop) for stop in stops]
        if named:
            body |= {"logprobs": 1, "logprob_token_ids": [int(each) for each in named]}
        while True:
            if not named:
                body["logprobs"] = self.most
            if of_prompt:
                body["prompt_logprobs"] = self.most
            try:
                return self.server.post(PATH, body)
            except Refused as error:
                if "logprob" not in str(error) or self.most == BEST[-1] or named:
                    raise
                self.most = BEST[BEST.index(self.most) + 1]

    def _checked(self, batch: Prompts, answer: Mapping[str, Any]) -> list[Completion]:
        where = f"POST {self.server.address(PATH)}"
        found = completions(answer, len(batch), where)
        counted = prompt_tokens(answer)
        if all(not isinstance(each, str) for each in batch) and counted not in (None, sum(map(len, batch))):
            raise ServerFault(f"{where}: {sum(map(len, batch))} token ids were sent, but the server read {counted}")
        for index, (prompt, each) in enumerate(zip(batch, found, strict=True)):
            if each.prompt_ids is None:
                continue
            if not isinstance(prompt, str) and each.prompt_ids != tuple(prompt):
                raise ServerFault(
                    f"{where}: prompt {index}: the server read {list(each.prompt_ids[:8])} ... "
                    f"({len(each.prompt_ids)} ids), but {list(prompt[:8])} ... ({len(prompt)}) were sent"
                )
        return found


def forced_by_prefill(asker: Asker, rows: Sequence[TokenIds], forced: Sequence[TokenIds], wanted: Integers) -> Floats:
    """Logprobs of `wanted` ids [n, positions, candidates] where `forced` follows each row; NaN behind a row's last."""
    values = np.full(wanted.shape, np.nan)
    whole = [[*row, *tokens] for row, tokens in zip(rows, forced, strict=True)]
    for index, each in enumerate(asker.greedy(whole, max_tokens=1, of_prompt=True)):
        if len(each.prompt) != len(whole[index]):
            raise ServerFault(
                f"POST {asker.server.address(PATH)}: prompt {index}: logprobs for {len(each.prompt)} tokens of a "
                f"prompt of {len(whole[index])}"
            )
        for position in range(len(forced[index])):
            _fill(values, wanted, index, position, each.prompt[len(rows[index]) + position])
    for position in range(wanted.shape[1]):
        there = [index for index, tokens in enumerate(forced) if position < len(tokens)]
        unknown = {index: _unknown(values[index, position], wanted[index, position]) for index in there}
        for group, ids in _left(asker, unknown):
            prefixes = [[*rows[index], *forced[index][:position]] for index in group]
            for index, each in zip(group, asker.greedy(prefixes, max_tokens=1, named=ids), strict=True):
                _fill(values, wanted, index, position, each.steps[0] if each.steps else {})
    return _complete(values, forced)


def forced_by_decode(asker: Asker, rows: Sequence[TokenIds], forced: Sequence[TokenIds], wanted: Integers) -> Floats:
    """The same, read while the server decodes its own greedy text, set back on the forced one where it leaves that."""
    values = np.full(wanted.shape, np.nan)
    _decode(asker, rows, forced, range(len(rows)), (), lambda row, at, step: _fill(values, wanted, row, at, step))
    unknown = {row: _unknown(values[row, : len(each)], wanted[row, : len(each)]) for row, each in enumerate(forced)}
    for group, ids in _left(asker, unknown):
        _decode(asker, rows, forced, group, ids, lambda row, at, step: _fill(values, wanted, row, at, step))
    return _complete(values, forced)


def _decode(
    asker: Asker,
    rows: Sequence[TokenIds],
    forced: Sequence[TokenIds],
    chosen: Sequence[int],
    named: Sequence[int],
    take: Callable[[int, int, Logprobs], None],
) -> None:
    done = dict.fromkeys(chosen, 0)
    for _ in range(1 + RETURNS):
        left = [row for row in chosen if done[row] < len(forced[row])]
        if not left:
            return
        prompts = [[*rows[row], *forced[row][: done[row]]] for row in left]
        longest = max(len(forced[row]) - done[row] for row in left)
        for row, each in zip(left, asker.greedy(prompts, max_tokens=longest, named=named), strict=True):
            if not each.tokens:
                raise ServerFault(
                    f"POST {asker.server.address(PATH)}: no token was generated, where {longest} were asked for"
                )
            for token, step in zip(each.tokens, each.steps, strict=True):
                if done[row] == len(forced[row]):
                    break
                take(row, done[row], step)
                done[row] += 1
                if token != forced[row][done[row] - 1]:
                    break
    raise NotSupported(
        f"{PATH} cannot be told which tokens to generate, and the server's own greedy text left the forced one more "
        f"than {RETURNS} times"
    )


def _left(asker: Asker, unknown: Mapping[int, set[int]]) -> Iterator[tuple[list[int], list[int]]]:
    """Groups of rows, and at most NAMED ids each, that together are all that is `unknown` of each row."""
    open_rows = {row: ids for row, ids in unknown.items() if ids}
    if open_rows and not asker.names_ids:
        raise NotSupported(
            f"the server gives the {asker.most} best tokens of a position, but logprobs of named ids are compared; "
            f"it would have to take logprob_token_ids at {PATH}, as vLLM does"
        )
    group: list[int] = []
    union: set[int] = set()
    for row, ids in open_rows.items():
        if group and len(union | ids) > NAMED:
            yield from ((group, part) for part in _parts(sorted(union)))
            group, union = [], set()
        group, union = [*group, row], union | ids
    if group:
        yield from ((group, part) for part in _parts(sorted(union)))


def _parts(ids: list[int]) -> list[list[int]]:
    return [ids[start : start + NAMED] for start in range(0, len(ids), NAMED)]


def _unknown(values: Floats, wanted: Integers) -> set[int]:
    return set(map(int, wanted[np.isnan(values)]))


def _fill(values: Floats, wanted: Integers, row: int, position: int, step: Logprobs) -> None:
    for candidate, token in enumerate(wanted[row, position].tolist()):
        if token in step:
            values[row, position, candidate] = step[token]


def _complete(values: Floats, forced: Sequence[TokenIds]) -> Floats:
    """The values, once each forced position has all of its candidates."""
    for row, tokens in enumerate(forced):
        missing = np.isnan(values[row, : len(tokens)])
        if missing.any():
            position = int(np.nonzero(missing.any(axis=1))[0][0])
            raise ServerFault(
                f"prompt {row}, position {position}: logprobs of {int(missing[position].sum())} of "
                f"{missing.shape[1]} named ids did not come, though they were asked for"
            )
    return values
