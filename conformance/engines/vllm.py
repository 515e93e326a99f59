"""vLLM, in the process of its worker or in processes of its own, on the devices that its build is for."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import vllm
from vllm import LLM, PoolingParams, SamplingParams

from conformance.engines import vllm_answers as answers
from conformance.engines.pooled import single
from conformance.engines.vllm_arguments import engine_arguments, require_version
from conformance.engines.vllm_attention import VllmAttention
from conformance.engines.vllm_prompts import PILLOW, PicturePrompts
from conformance.runner import (
    AttentionCall,
    AttentionOutputs,
    ClassLogits,
    Effective,
    ForcedLogprobs,
    Generations,
    Grid,
    Message,
    NotSupported,
    Prompt,
    Runner,
    Scalars,
    TokenIds,
    TokenLogprobs,
    Vectors,
    VisionFeatures,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from conformance.runner import Integers

BATCHED = "batched"
"""The value of the engine option `empty_documents` for which pairs without a document are tokenized here, batched."""


class VllmRunner(Runner):
    """One model on vLLM; it forms its own batches of the prompts of a question."""

    capabilities = frozenset(
        {
            *("embed", "score_pairs", "token_logprobs", "classify", "reward", "generate", "score_tokens"),
            *("vision_features", "attention"),
        }
    )

    def __enter__(self) -> Self:
        from vllm.config import PoolerConfig
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        require_version(vllm.__version__)
        arguments = engine_arguments(
            self.request,
            options=[field.name for field in dataclasses.fields(EngineArgs)],
            backends=AttentionBackendEnum.__members__,
            pooler=[field.name for field in dataclasses.fields(PoolerConfig)],
        )
        if isinstance(arguments.get("pooler_config"), dict):
            arguments["pooler_config"] = PoolerConfig(**arguments["pooler_config"])
        self._attention: VllmAttention | None = None
        if self.request.role == "attention":  # of kernels alone, for which no model is loaded
            self._attention = VllmAttention(self.request, arguments)
            return self
        self.llm = LLM(**arguments)
        self._tokenizer = self.llm.get_tokenizer()
        self._limit = self.request.parameters.get("max_tokens")
        self._grids: list[tuple[Grid, ...]] = []
        self._pictures: PicturePrompts | None = None
        if self.request.role == "multimodal":
            resizes = self.request.options.get("resize") == PILLOW
            self._pictures = PicturePrompts(Path(self.request.folder), resizes=resizes)
            self._watch_pictures()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._attention is not None:
            self._attention = None
            return
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        if self._attention is None:
            raise NotSupported("vLLM's kernels are called alone where the model was loaded for the role attention")
        return self._attention.answers(calls, repeats=repeats, poison=poison)

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Vectors:
        outputs, effective = self._pool(list(prompts), "embed", PoolingParams(dimensions=dimensions))
        return Vectors(answers.prompt_ids(outputs), effective, answers.pooled(outputs))

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        params = PoolingParams(use_activation=False)
        batched = self.request.options.get("empty_documents") == BATCHED
        empty = [row for row, (_, document) in enumerate(pairs) if batched and not document]
        whole = [row for row in range(len(pairs)) if row not in empty]
        answered: dict[int, tuple[TokenIds, float]] = {}
        with self._observing() as seen:
            if whole:
                outputs = self.llm.score(
                    *([pairs[row][side] for row in whole] for side in (0, 1)),
                    pooling_params=params,
                    tokenization_kwargs=self._cut(),
                    use_tqdm=False,
                )
                ids, scores = answers.prompt_ids(outputs), [float(each.outputs.score) for each in outputs]
                answered.update(zip(whole, zip(ids, scores, strict=True), strict=True))
            if empty:
                rows = self._tokenizer([pairs[row][0] for row in empty], [""] * len(empty), **self._cut())["input_ids"]
                found = self._encode([{"prompt_token_ids": row} for row in rows], "classify", params)
                scores = single(answers.pooled(found)).tolist()
                answered.update(zip(empty, zip(answers.prompt_ids(found), scores, strict=True), strict=True))
        ordered = [answered[row] for row in range(len(pairs))]
        return Scalars(tuple(ids for ids, _ in ordered), seen(), np.array([score for _, score in ordered]))

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        outputs, effective = self._pool(list(prompts), "classify", PoolingParams(use_activation=False))
        return ClassLogits(answers.prompt_ids(outputs), effective, answers.pooled(outputs))

    def reward(self, conversations: Sequence[Sequence[Message]]) -> Scalars:
        texts = [self._tokenizer.apply_chat_template(list(turns), tokenize=False) for turns in conversations]
        params = PoolingParams(use_activation=False)
        outputs, effective = self._pool(texts, "classify", params, add_special_tokens=False)
        return Scalars(answers.prompt_ids(outputs), effective, single(answers.pooled(outputs)))

    def token_logprobs(self, prompts: Sequence[str], tokens: Sequence[int]) -> TokenLogprobs:
        wanted = [int(token) for token in tokens]
        named = "logprob_token_ids" in SamplingParams.__struct_fields__
        which: dict[str, Any] = {"logprob_token_ids": wanted} if named else {"logprobs": -1}
        params = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, **which)
        outputs, effective = self._generate(list(prompts), params, **self._cut())
        return TokenLogprobs(answers.prompt_ids(outputs), effective, answers.named_logprobs(outputs, wanted))

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
        params = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            logprobs=top_k,
            stop_token_ids=[int(each) for each in stop_token_ids],
        )
        outputs, effective = self._generate(self._written(prompts, images, videos), params)
        grids = tuple(self._grids) if images is not None or videos is not None else ()
        return Generations(answers.prompt_ids(outputs), effective, grids=grids, **answers.generated(outputs, top_k))

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
        from conformance.engines.vllm_forced import ask_by_decode, ask_by_prefill

        forced = [[int(token) for token in tokens] for tokens in continuations]
        rows = [[int(token) for token in prompt] for prompt in prompts]
        whole = [[*row, *tokens] for row, tokens in zip(rows, forced, strict=True)] if via == "prefill" else rows
        written = self._written(whole, images, videos)
        ask = ask_by_prefill if via == "prefill" else ask_by_decode
        with self._observing() as seen:
            outputs, values = ask(self.llm, written, rows, forced, candidates)
        ids = answers.prompt_ids(outputs)
        read = tuple(each[: len(each) - len(tokens)] for each, tokens in zip(ids, forced, strict=True))
        return ForcedLogprobs(read if via == "prefill" else ids, seen(outputs), values)

    def vision_features(self, images: Sequence[Any], videos: Sequence[Any]) -> VisionFeatures:
        pictures = self._with_pictures("vision_features")
        params = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
        given = [*(("image", each) for each in images), *(("video", each) for each in videos)]
        self._grids.clear()
        found = []
        with self._observing(features=True) as seen:
            for kind, picture in given:  # one by one, so that it is known whose features are whose
                self.llm.llm_engine.reset_encoder_cache()
                self.llm.generate([pictures.alone(kind, picture)], params, use_tqdm=False)
            found = self.llm.collective_rpc("conformance_features")[0]
        grids = tuple(grid for each in self._grids for grid in each)
        if not len(found) == len(grids) == len(given):
            raise ValueError(
                f"{len(given)} pictures were given, but vLLM made {len(grids)} grids, {len(found)} features"
            )
        return VisionFeatures((), seen(), np.concatenate([np.array(each, np.float32) for each in found]), grids)

    def _pool(self, prompts: list[str], task: str, params: PoolingParams, **tokenizing: Any) -> tuple[Any, Effective]:
        with self._observing() as seen:
            outputs = self._encode(prompts, task, params, **self._cut(), **tokenizing)
        return outputs, seen(outputs)

    def _encode(self, prompts: list[Any], task: Any, params: PoolingParams, **tokenizing: Any) -> Any:
        return self.llm.encode(
            prompts, pooling_params=params, pooling_task=task, tokenization_kwargs=tokenizing, use_tqdm=False
        )

    def _generate(self, prompts: list[Any], params: SamplingParams, **tokenizing: Any) -> tuple[Any, Effective]:
        self._grids.clear()
        with self._observing() as seen:
            outputs = self.llm.generate(prompts, params, tokenization_kwargs=tokenizing, use_tqdm=False)
        return outputs, seen(outputs)

    def _cut(self) -> dict[str, Any]:
        """How prompts longer than the model are cut: as its tokenizer cuts them."""
        return {} if self._limit is None else {"truncation": True, "max_length": int(self._limit)}

    def _written(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]] | None,
        videos: Sequence[Sequence[Any]] | None,
    ) -> list[Any]:
        """Prompts as vLLM takes them, with their pictures."""
        for what, given in (("images", images), ("videos", videos)):
            if given is not None and len(given) != len(prompts):
                raise ValueError(f"{what} for {len(given)} prompts, but there are {len(prompts)}")
        if images is None and videos is None:
            return [each if isinstance(each, str) else {"prompt_token_ids": list(each)} for each in prompts]
        pictures = self._with_pictures("a prompt with pictures")
        # Pictures that were seen before are seen again: what is asked twice is to be computed twice.
        self.llm.llm_engine.reset_encoder_cache()
        return [
            pictures.write(each, images[i] if images else (), videos[i] if videos else ())
            for i, each in enumerate(prompts)
        ]

    def _with_pictures(self, asked: str) -> PicturePrompts:
        if self._pictures is None:
            raise NotSupported(f"{self.request.model} has no vision tower, so it cannot answer {asked}")
        return self._pictures

    def _watch_pictures(self) -> None:
        """Keep the grids of every prompt that vLLM's processor has read, in the order of the prompts."""
        engine = self.llm.llm_engine
        add = engine.add_request

        def adding(name: str, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            self._grids.append(answers.grids(prompt.get("mm_kwargs") or {}))
            return add(name, prompt, *args, **kwargs)

        engine.add_request = adding

    @contextmanager
    def _observing(self, *, features: bool = False) -> Iterator[Any]:
        """Count what runs; what is yielded says it, and may be asked once the question is answered, with its outputs
        where these tell what a cache had.
        """
        self.llm.collective_rpc("conformance_watch", args=(features,))

        def seen(outputs: Sequence[Any] = ()) -> Effective:
            ran = answers.effective(self.llm.collective_rpc("conformance_seen"))
            return dataclasses.replace(ran, cached_tokens=answers.cached_tokens(outputs) if outputs else None)

        yield seen
