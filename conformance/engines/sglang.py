"""SGLang, through its engine in this process, which computes in processes of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import sglang
from sglang.srt.server_args import ServerArgs

from conformance.engines import sglang_answers as answers
from conformance.engines import sglang_requests as requests
from conformance.engines.pooled import single
from conformance.engines.sglang_arguments import engine_arguments, features, require_version
from conformance.engines.sglang_attention import SglangAttention
from conformance.engines.sglang_folder import ZEROS, with_score_bias
from conformance.engines.sglang_pictures import PicturePrompts
from conformance.runner import (
    AttentionCall,
    AttentionOutputs,
    ClassLogits,
    Effective,
    ForcedLogprobs,
    Generations,
    Message,
    NotSupported,
    Prompt,
    Runner,
    Scalars,
    TokenLogprobs,
    Vectors,
    VisionFeatures,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from conformance.runner import Grid, Integers

    Written = tuple[Prompt, dict[str, Any], tuple[Grid, ...]]


class SglangRunner(Runner):
    """One model on SGLang; it forms its own batches of the prompts of a question.

    Its shutdown ends every child of this process, which must therefore be a worker that has none of other use.
    """

    capabilities = frozenset(
        {
            *("embed", "score_pairs", "token_logprobs", "classify", "reward", "generate", "score_tokens"),
            *("vision_features", "attention"),
        }
    )

    def __enter__(self) -> Self:
        from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

        require_version(sglang.__version__)
        self._attention: SglangAttention | None = None
        if self.request.role == "attention":  # of kernels alone, for which no model is loaded
            self._attention = SglangAttention(self.request)
            return self
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-sglang-")
        self._calls = Path(self._folder.name, "calls")
        self._calls.touch()
        request = self.request
        if request.options.get("score_bias") == ZEROS:
            folder = with_score_bias(Path(request.folder), Path(self._folder.name, "checkpoint"))
            request = dataclasses.replace(request, folder=str(folder))
        arguments = engine_arguments(
            request,
            options=inspect.signature(ServerArgs).parameters,
            backends=ATTENTION_BACKENDS,
            calls=str(self._calls),
            at_fault=_tell,
        )
        try:
            self.engine = sglang.Engine(**arguments)
        except RuntimeError as error:
            self._folder.cleanup()
            raise RuntimeError(f"SGLang failed to start: {error}; the worker's log says why") from error
        manager = self.engine.tokenizer_manager
        self._tokenizer, self._layers = manager.tokenizer, int(manager.model_config.num_hidden_layers)
        self._arguments = self.engine.get_server_info()
        self._ids: dict[str, Sequence[int]] = {}
        self._watch_ids(manager)
        self._limit = self.request.parameters.get("max_tokens")
        self._pictures: PicturePrompts | None = None
        if self.request.role == "multimodal":
            self._pictures = PicturePrompts(Path(self.request.folder), lambda text: self._tokenizer(text)["input_ids"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._attention is not None:
            self._attention = None
            return
        self.engine.shutdown()
        self._folder.cleanup()

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        if self._attention is None:
            raise NotSupported("SGLang's kernels are called alone where the model was loaded for the role attention")
        return self._attention.answers(calls, repeats=repeats, poison=poison)

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Vectors:
        found, effective = self._pool(prompts, dimensions=dimensions)
        return Vectors(answers.prompt_ids(found), effective, answers.pooled(found))

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        found, effective = self._ask([self._pair(*pair) for pair in pairs])
        return Scalars(answers.prompt_ids(found), effective, single(answers.pooled(found)))

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        found, effective = self._pool(prompts)
        return ClassLogits(answers.prompt_ids(found), effective, answers.pooled(found))

    def reward(self, conversations: Sequence[Sequence[Message]]) -> Scalars:
        rows = [
            self._tokenizer.apply_chat_template(list(turns), tokenize=True, return_dict=True)["input_ids"]
            for turns in conversations
        ]
        found, effective = self._ask([requests.pooling(row) for row in rows])
        return Scalars(answers.prompt_ids(found), effective, single(answers.pooled(found)))

    def token_logprobs(self, prompts: Sequence[str], tokens: Sequence[int]) -> TokenLogprobs:
        wanted = [int(token) for token in tokens]
        found, effective = self._ask(
            [requests.generation(each, max_tokens=1, token_ids_logprob=wanted) for each in map(self._text, prompts)]
        )
        return TokenLogprobs(answers.prompt_ids(found), effective, answers.named_logprobs(found, wanted))

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        top_k: int = 20,
        stop_token_ids: Sequence[int] = (),
        images: Sequence[Sequence[Any]] | None = None,
        videos: Sequence[Sequence[Any]] | None = None,
    ) -> Generations:
        written = self._written(prompts, images, videos)
        stops = [int(each) for each in stop_token_ids]
        found, effective = self._ask(
            [
                requests.generation(
                    each,
                    max_tokens=max_tokens,
                    sampling={"stop_token_ids": stops} if stops else {},
                    top_logprobs_num=top_k,
                    **beside,
                )
                for each, beside, _ in written
            ]
        )
        grids = () if images is None and videos is None else tuple(each for _, _, each in written)
        return Generations(answers.prompt_ids(found), effective, grids=grids, **answers.generated(found, top_k))

    def score_tokens(
        self,
        prompts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        candidates: Integers,
        *,
        via: Literal["prefill", "decode"],
        images: Sequence[Sequence[Any]] | None = None,
        videos: Sequence[Sequence[Any]] | None = None,
    ) -> ForcedLogprobs:
        rows = [[int(token) for token in prompt] for prompt in prompts]
        forced = [[int(token) for token in tokens] for tokens in continuations]
        if via == "decode":
            return self._decode(self._written(rows, images, videos), forced, candidates)
        whole = [[*row, *tokens] for row, tokens in zip(rows, forced, strict=True)]
        found, effective = self._ask(
            [
                requests.generation(
                    prompt,
                    max_tokens=0,
                    logprob_start_len=len(row) - 1,
                    # SGLang takes one list a request, so each position is asked for the candidates of all.
                    token_ids_logprob=np.unique(candidates[index, : len(tokens)]).tolist(),
                    **beside,
                )
                for index, (row, tokens, (prompt, beside, _)) in enumerate(
                    zip(rows, forced, self._written(whole, images, videos), strict=True)
                )
            ]
        )
        ids = answers.prompt_ids(found)
        read = tuple(each[: len(each) - len(tokens)] for each, tokens in zip(ids, forced, strict=True))
        return ForcedLogprobs(read, effective, answers.prefilled(found, forced, candidates))

    def _decode(
        self, written: Sequence[Written], forced: Sequence[Sequence[int]], candidates: Integers
    ) -> ForcedLogprobs:
        from conformance.engines.sglang_rows import Forced

        read = Path(self._folder.name, "read")
        read.write_text("")
        processor = Forced.to_str()
        found, effective = self._ask(
            [
                requests.generation(
                    row,
                    max_tokens=len(tokens),
                    sampling={
                        "ignore_eos": True,
                        "custom_params": {
                            "row": index,
                            "tokens": tokens,
                            "candidates": candidates[index, : len(tokens)].tolist(),
                            "file": str(read),
                        },
                    },
                    custom_logit_processor=processor,
                    **beside,
                )
                for index, ((row, beside, _), tokens) in enumerate(zip(written, forced, strict=True))
            ]
        )
        values = answers.decoded(read.read_text().splitlines(), forced, candidates)
        return ForcedLogprobs(answers.prompt_ids(found), effective, values)

    def vision_features(self, images: Sequence[Any], videos: Sequence[Any]) -> VisionFeatures:
        pictures = self._with_pictures("vision_features")
        given = [*(("image", each) for each in images), *(("video", each) for each in videos)]
        written = [pictures.alone(kind, picture) for kind, picture in given]
        kept = Path(features(str(self._calls)))
        kept.mkdir()
        try:
            before, asked = self._calls.stat().st_size, []
            for ids, beside, _ in written:  # one by one, so that it is known whose features are whose
                asked += self._ask([requests.generation(ids, max_tokens=1, **beside)])[0]
            found = [np.load(each) for each in sorted(kept.iterdir())]
        finally:
            shutil.rmtree(kept)
        grids = tuple(grid for _, _, each in written for grid in each)
        if len(found) != len(given):
            raise ValueError(f"{len(given)} pictures were given, but SGLang's tower handed on {len(found)}")
        return VisionFeatures((), self._seen(before, asked), np.concatenate(found), grids)

    def _written(self, prompts: Sequence[Prompt], *pictures: Sequence[Sequence[Any]] | None) -> list[Written]:
        """Prompts, what SGLang is given beside them, and the grids of their pictures: images, then videos."""
        if all(each is None for each in pictures):
            return [(each, {}, ()) for each in prompts]
        return self._with_pictures("a prompt with pictures").write_all(prompts, *pictures)

    def _with_pictures(self, asked: str) -> PicturePrompts:
        if self._pictures is None:
            raise NotSupported(f"{self.request.model} has no vision tower, so it cannot answer {asked}")
        return self._pictures

    def _pool(self, prompts: Sequence[str], **how: Any) -> tuple[list[answers.Answer], Effective]:
        return self._ask([requests.pooling(each, **how) for each in map(self._text, prompts)])

    def _pair(self, query: str, document: str) -> Any:
        ids = self._cut(query, document)
        if ids is None:
            return requests.pair(query, document)
        if any(self._tokenizer(query, document).get("token_type_ids", ())):
            raise NotSupported(
                "SGLang takes ids of a pair without their types, so a pair that is too long cannot be cut"
            )
        return requests.pooling(ids)

    def _text(self, prompt: str) -> Prompt:
        """A text, or where it is longer than the model the ids that its tokenizer cuts it to; SGLang refuses those."""
        ids = self._cut(prompt)
        return prompt if ids is None else ids

    def _cut(self, *texts: str) -> list[int] | None:
        if self._limit is None or len(self._tokenizer(*texts)["input_ids"]) <= int(self._limit):
            return None
        return list(self._tokenizer(*texts, truncation=True, max_length=int(self._limit))["input_ids"])

    def _ask(self, asked: Sequence[Any]) -> tuple[list[answers.Answer], Effective]:
        """All that is asked at once, and what ran; ValueError for another number of answers."""
        self._ids.clear()
        # Calls inside a graph are seen when it is captured, and never again.
        before = 0 if answers.replays_graphs(self._arguments) else self._calls.stat().st_size

        async def one(request: Any) -> Any:
            found = await anext(self.engine.tokenizer_manager.generate_request(request, None))
            answer = answers.complete(found, 1)[0]
            return {**answer, "prompt_token_ids": self._ids.get(answer["meta_info"]["id"])}

        async def every() -> list[Any]:
            return list(await asyncio.gather(*map(one, asked)))

        found = answers.complete(self.engine.loop.run_until_complete(every()), len(asked))
        return found, self._seen(before, found)

    def _watch_ids(self, manager: Any) -> None:
        """Keep the ids that SGLang's tokenizer process hands to its scheduler; of pooled prompts it returns none."""
        tokenize = manager._tokenize_one_request

        async def tokenizing(request: Any) -> Any:
            found = await tokenize(request)
            self._ids[found.rid] = list(found.input_ids)
            return found

        manager._tokenize_one_request = tokenizing

    def _seen(self, before: int, found: Sequence[answers.Answer]) -> Effective:
        """What ran since the file of calls was so long."""
        with self._calls.open("rb") as file:
            file.seek(before)
            lines = file.read().decode("ascii").splitlines()
        tower = self._pictures.layers if self._pictures else 0
        return answers.effective(lines, self._arguments, self._layers, found, tower)


def _tell(*_: Any) -> None:
    """Where SGLang would end this process, let it tell what it waits for in vain."""
    os.write(2, b"a process of SGLang failed while it was started\n")
