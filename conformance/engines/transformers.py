"""Hugging Face transformers on any torch device: cpu, cuda, xpu, or a vendor's own through its torch device module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from transformers import GenerationConfig

from conformance.engines import chunked
from conformance.engines.kernel_calls import perform
from conformance.engines.loaded_model import LoadedModel
from conformance.engines.model_attention import ModelAttention
from conformance.engines.pooled import single
from conformance.engines.pooling import pooling
from conformance.engines.vision import Pictures, Vision
from conformance.runner import (
    RAISED,
    AttentionCall,
    AttentionOutputs,
    ClassLogits,
    ForcedLogprobs,
    Generations,
    Message,
    NotSupported,
    Prompt,
    Scalars,
    TokenIds,
    TokenLogprobs,
    Vectors,
    VisionFeatures,
)

if TYPE_CHECKING:
    from conformance.runner import Integers


class TransformersRunner(LoadedModel):
    """One transformers model; batches are ragged and padded, as a server would form them."""

    capabilities = frozenset(
        {
            *("embed", "score_pairs", "token_logprobs", "classify", "reward", "generate", "score_tokens"),
            *("vision_features", "attention"),
        }
    )

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Vectors:
        rows = self._tokenize(list(prompts))
        pool = pooling(self.request.parameters.get("pooling", "last"))

        def pooled(output: Any, mask: torch.Tensor) -> torch.Tensor:
            chosen = pool(self._widest(output.last_hidden_state), mask)[:, :dimensions]
            return torch.nn.functional.normalize(chosen, dim=-1)

        values, effective = self._forward_all(rows, pooled)
        return Vectors(rows, effective, values)

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        rows = self._tokenize([query for query, _ in pairs], [document for _, document in pairs])
        values, effective = self._forward_all(rows, lambda output, _: self._widest(output.logits))
        return Scalars(rows, effective, single(values))

    def token_logprobs(self, prompts: Sequence[str], tokens: Sequence[int]) -> TokenLogprobs:
        rows = self._tokenize(list(prompts))
        wanted = torch.tensor(list(tokens))

        def chosen(output: Any, _: torch.Tensor) -> torch.Tensor:
            return _log_softmax(output.logits[:, -1])[:, wanted]

        values, effective = self._forward_all(rows, chosen, side="left", logits_to_keep=1)
        return TokenLogprobs(rows, effective, values)

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        rows = self._tokenize(list(prompts))
        values, effective = self._forward_all(rows, lambda output, _: self._widest(output.logits))
        return ClassLogits(rows, effective, values)

    def reward(self, conversations: Sequence[Sequence[Message]]) -> Scalars:
        texts = [self.tokenizer.apply_chat_template(list(turns), tokenize=False) for turns in conversations]
        rows = self._tokenize(texts, special=False)
        values, effective = self._forward_all(rows, lambda output, _: self._widest(output.logits))
        return Scalars(rows, effective, single(values))

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
        rows, pictures = self._with_pictures(prompts, images, videos)
        ends = set(self._end_token_ids()) | {int(token) for token in stop_token_ids}
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=sorted(ends) or None,
            pad_token_id=self.tokenizer.pad_token_id,
            return_dict_in_generate=True,
            output_logits=True,
            prefill_chunk_size=self._chunk or None,
        )
        shape = (len(rows), max_tokens)
        ids: list[TokenIds] = [()] * len(rows)
        logprobs = np.full(shape, np.nan)
        top_ids = np.full((*shape, top_k), -1, dtype=np.int64)
        top_logprobs = np.full((*shape, top_k), np.nan)
        with self._observing() as seen:
            for batch in self._batches([len(row) for row in rows], extra=max_tokens):
                inputs, mask, _ = self._pad([rows[index] for index in batch], "left")
                seen_with = self._picture_arguments(inputs, [pictures[index] for index in batch])
                with self._computing():
                    output = self.model.generate(inputs, attention_mask=mask, generation_config=config, **seen_with)
                generated = output.sequences[:, inputs.shape[1] :].cpu()
                for row, index in enumerate(batch):  # a batch's logprobs of a large vocabulary would take gigabytes
                    ids[index] = _until_end(generated[row].tolist(), ends)
                    length = len(ids[index])
                    scores = _log_softmax(torch.stack([step[row] for step in output.logits[:length]]))
                    best = scores.topk(top_k, dim=-1)
                    logprobs[index, :length] = scores.gather(1, generated[row, :length, None])[:, 0]
                    top_ids[index, :length] = best.indices
                    top_logprobs[index, :length] = best.values
        longest = max((len(row) for row in ids), default=0)
        return Generations(
            rows,
            seen.effective(),
            tuple(ids),
            tuple(self._text(row, ends) for row in ids),
            tuple("stop" if row and row[-1] in ends else "length" for row in ids),
            logprobs[:, :longest],
            top_ids[:, :longest],
            top_logprobs[:, :longest],
            tuple(each.grids for each in pictures) if images or videos else (),
        )

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
        rows, pictures = self._with_pictures(prompts, images, videos)
        forced = [[int(token) for token in continuation] for continuation in continuations]
        positions = candidates.shape[1]
        values = np.full(candidates.shape, np.nan)
        score = self._score_by_prefill if via == "prefill" else self._score_by_decode
        at_once, later = (positions, 0) if via == "prefill" else (0, positions)
        with self._observing() as seen:
            for batch in self._batches([len(row) + at_once for row in rows], extra=later):
                wanted = torch.from_numpy(np.ascontiguousarray(candidates[batch], dtype=np.int64))
                with self._computing():
                    found = score(
                        [rows[i] for i in batch], [forced[i] for i in batch], [pictures[i] for i in batch], wanted
                    )
                for row, index in enumerate(batch):
                    length = len(forced[index])
                    values[index, :length] = found[row, :length]
        return ForcedLogprobs(rows, seen.effective(), values)

    def vision_features(self, images: Sequence[Any], videos: Sequence[Any]) -> VisionFeatures:
        vision = self._vision("vision_features")
        pictures = vision.read(images, videos)
        with self._observing() as seen, self._computing():
            values = torch.cat([self._widest(found) for found in vision.features(pictures)]).cpu().numpy()
        return VisionFeatures((), seen.effective(), values, pictures.grids)

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        kernel = ModelAttention(self.model)
        with self._observing() as seen, self._computing():
            values, faults = perform(
                calls, kernel, device=self.device, dtype=self.torch_dtype, repeats=repeats, poison=poison
            )
        answered = sum(not any(each.startswith(RAISED) for each in wrong) for wrong in faults)
        effective = replace(seen.effective(), layers=1, forwards=answered)
        return AttentionOutputs((), effective, values, faults)

    def _vision(self, asked: str) -> Vision:
        if self.vision is None:
            raise NotSupported(f"{self.request.model} has no vision tower, so it cannot answer {asked}")
        return self.vision

    def _with_pictures(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]] | None,
        videos: Sequence[Sequence[Any]] | None,
    ) -> tuple[tuple[TokenIds, ...], list[Pictures]]:
        """Ids and pictures of every prompt, the placeholders in texts repeated for every merged patch."""
        for what, given in (("images", images), ("videos", videos)):
            if given is not None and len(given) != len(prompts):
                raise ValueError(f"{what} for {len(given)} prompts, but there are {len(prompts)}")
        rows, pictures = [], []
        for index, prompt in enumerate(prompts):
            ids = self._tokenize([prompt])[0] if isinstance(prompt, str) else tuple(int(token) for token in prompt)
            beside = Pictures()
            if images is not None or videos is not None:
                vision = self._vision("a prompt with pictures")
                beside = vision.read(images[index] if images else (), videos[index] if videos else ())
                if isinstance(prompt, str):
                    ids = vision.expanded(ids, beside)
                vision.check(ids, beside)
            rows.append(ids)
            pictures.append(beside)
        return tuple(rows), pictures

    def _picture_arguments(self, ids: torch.Tensor, pictures: Sequence[Pictures]) -> dict[str, torch.Tensor]:
        if self.vision is None:
            return {}
        return {**self.vision.arguments(pictures), **self.vision.token_types(ids)}

    def _prefill(
        self, rows: Sequence[Sequence[int]], pictures: Sequence[Pictures], *, keep: int, use_cache: bool
    ) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
        """One pass over left-padded rows: output, logits of the last `keep` positions, mask, last position ids."""
        inputs, mask, positions = self._pad(rows, "left")
        beside = self._picture_arguments(inputs, pictures)
        if self.vision:
            positions = self.vision.positions(inputs, mask, positions, beside)
        if self._chunk:
            if self.vision is not None:
                raise NotSupported(f"{chunked.OPTION}: pictures are read in one pass with the text around them")
            how: dict[str, Any] = {"size": self._chunk, "cache": self._cache_name, "keeps": self._can_keep_logits}
            return *chunked.logits(self.model, inputs, mask, positions, keep, **how), mask, positions[..., -1:]
        if self._can_keep_logits:
            beside["logits_to_keep"] = keep  # type: ignore[assignment]
        output = self.model(
            input_ids=inputs, attention_mask=mask, position_ids=positions, use_cache=use_cache, **beside
        )
        return output, output.logits[:, -keep:], mask, positions[..., -1:]

    def _score_by_prefill(
        self,
        rows: Sequence[TokenIds],
        forced: Sequence[Sequence[int]],
        pictures: Sequence[Pictures],
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        length = wanted.shape[1]
        # Short continuations are filled up on the right, where causal attention keeps them out of what is read.
        whole = [[*row, *tokens, *[row[0]] * (length - len(tokens))] for row, tokens in zip(rows, forced, strict=True)]
        _, logits, _, _ = self._prefill(whole, pictures, keep=length + 1, use_cache=False)
        # Row by row: a batch's logprobs of a large vocabulary would take gigabytes.
        return torch.stack([_log_softmax(row).gather(1, ids) for row, ids in zip(logits[:, :-1], wanted, strict=True)])

    def _score_by_decode(
        self,
        rows: Sequence[TokenIds],
        forced: Sequence[Sequence[int]],
        pictures: Sequence[Pictures],
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        output, logits, mask, at = self._prefill(rows, pictures, keep=1, use_cache=True)
        found = torch.empty(wanted.shape, dtype=torch.float64)
        for step in range(wanted.shape[1]):
            found[:, step] = _log_softmax(logits[:, -1]).gather(1, wanted[:, step])
            if step + 1 == wanted.shape[1]:
                break
            token = [[tokens[step] if step < len(tokens) else row[0]] for row, tokens in zip(rows, forced, strict=True)]
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            at = at + 1
            output = self.model(
                input_ids=torch.tensor(token, device=self.device),
                attention_mask=mask,
                position_ids=at,
                use_cache=True,
                **{self._cache_name: getattr(output, self._cache_name)},
            )
            logits = output.logits
        return found

    def _text(self, ids: TokenIds, ends: set[int]) -> str:
        kept = ids[:-1] if ids and ids[-1] in ends else ids
        return str(self.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _log_softmax(logits: torch.Tensor) -> torch.Tensor:
    """In float64 on the CPU: the rounding under test is the model's, not that of this function."""
    return torch.log_softmax(logits.cpu().double(), dim=-1)


def _until_end(ids: Sequence[int], ends: set[int]) -> TokenIds:
    for index, token in enumerate(ids):
        if token in ends:
            return tuple(ids[: index + 1])
    return tuple(ids)
