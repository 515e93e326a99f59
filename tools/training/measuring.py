"""Measures a checkpoint on inputs with known answers, one text at a time, through transformers."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    Qwen2VLForConditionalGeneration,
)

from conformance.engines.vision import Vision
from suites.inputs import classification, embedding, generation, multimodal, rerank, reward, scenes, windowed

from .vocabulary import RERANK_TEMPLATE

WINDOWED = "generation.window"
DIMENSIONS = (256, 128, 64)
MODEL_TOKENS = 1280


def task(name: str) -> str:
    """What the checkpoint `name` was trained for, a key of `TASKS`."""
    return WINDOWED if name.endswith(("mistral", "gemma2")) else name.split("-")[0]


def attentions(folder: Path) -> tuple[str, ...]:
    """The attention backends that can run the checkpoint: sdpa has no softcap."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return ("eager",) if config.get("attn_logit_softcapping") else ("eager", "sdpa")


@dataclass(frozen=True)
class Measured:
    """`right` of `known` answers are right; `faults` names what is not; `scores` the figures whose spread counts."""

    right: int
    known: int
    faults: tuple[str, ...]
    scores: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return self.right / self.known

    def spread(self) -> dict[str, float]:
        values = self.scores
        return {
            "mean": round(statistics.fmean(values), 4),
            "std": round(statistics.pstdev(values), 4),
            "min": round(min(values), 4),
            "max": round(max(values), 4),
        }


class Checkpoint:
    """A loaded checkpoint; `logits` are float32 whatever the model's dtype."""

    def __init__(self, folder: Path, dtype: torch.dtype, attention: str) -> None:
        kind = task(folder.name)
        causal = folder.name == "rerank-qwen3" or kind.startswith("generation")
        loader = AutoModel if kind == "embedding" else AutoModelForSequenceClassification
        loader = AutoModelForCausalLM if causal else loader
        loader = Qwen2VLForConditionalGeneration if kind == "multimodal" else loader
        self.name, self.kind = folder.name, kind
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model: PreTrainedModel = loader.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()
        self.vision = Vision(self.model, folder) if kind == "multimodal" else None

    @torch.inference_mode()
    def run(self, *text: str) -> Tensor:
        """The output for one text or pair: pooled vector, class logits, or next-token logits (1, width)."""
        encoded = self.tokenizer(*text, truncation=True, max_length=MODEL_TOKENS, return_tensors="pt")
        if encoded.input_ids.shape[1] == 0:
            raise ValueError("a text without tokens")
        output = self.model(**encoded)
        if self.kind == "embedding":
            place = 0 if self.name.endswith("xlmr") else -1
            return functional.normalize(output.last_hidden_state[:, place].float(), dim=1)
        logits: Tensor = output.logits.float()
        return logits[:, -1] if logits.dim() == 3 else logits


def measure_embedding(checkpoint: Checkpoint, inputs: embedding.EmbeddingInputs) -> Measured:
    """The nearest of all other texts must be the partner, with all dimensions and with the first 128 and 64."""
    vectors = torch.cat([checkpoint.run(prompt) for prompt in inputs.prompts])
    right, known, faults = 0, 0, []
    for size in DIMENSIONS:
        cut = functional.normalize(vectors[:, :size], dim=1)
        likeness = cut @ cut.T
        likeness.fill_diagonal_(-2.0)
        for i, partner in enumerate(inputs.partners):
            if partner is not None:
                known += 1
                right += int(likeness[i].argmax()) == partner
                if int(likeness[i].argmax()) != partner:
                    faults.append(f"text {i} at {size} dimensions")
    likeness = vectors @ vectors.T
    pairs = [(i, j) for i in range(len(vectors)) for j in range(i)]
    return Measured(right, known, tuple(faults), tuple(float(likeness[i, j]) for i, j in pairs))


def _ordered(scores: list[float], groups: tuple[int, ...], grades: tuple[int, ...]) -> Measured:
    """Of two answers of a group with different grades the better one must have the higher score."""
    right, known, faults = 0, 0, []
    for i in range(len(scores)):
        for j in range(len(scores)):
            if groups[i] == groups[j] and grades[i] > grades[j]:
                known += 1
                right += scores[i] > scores[j]
                if scores[i] <= scores[j]:
                    faults.append(f"{i} (grade {grades[i]}) under {j} (grade {grades[j]})")
    return Measured(right, known, tuple(faults), tuple(scores))


def measure_rerank(checkpoint: Checkpoint, inputs: rerank.RerankInputs) -> Measured:
    """Scores of a query's documents must have the order of their grades."""
    scores = []
    if checkpoint.name.endswith("xlmr"):
        scores = [float(checkpoint.run(query, document)[0, 0]) for query, document in inputs.pairs]
    else:
        yes, no = checkpoint.tokenizer.convert_tokens_to_ids(["yes", "no"])
        for query, document in inputs.pairs:
            prompt = RERANK_TEMPLATE.format(instruction=inputs.instruction, query=query, document=document)
            logits = checkpoint.run(prompt)[0]
            scores.append(float(logits[yes] - logits[no]))
    return _ordered(scores, inputs.groups, inputs.grades)


def measure_reward(checkpoint: Checkpoint, inputs: reward.RewardInputs) -> Measured:
    """Rewards of a prompt's answers must have the order of their grades."""
    texts = [checkpoint.tokenizer.apply_chat_template(list(c), tokenize=False) for c in inputs.conversations]
    return _ordered([float(checkpoint.run(text)[0, 0]) for text in texts], inputs.groups, inputs.grades)


def measure_classification(checkpoint: Checkpoint, inputs: classification.ClassificationInputs) -> Measured:
    """The top class must be the right one; the scores are its probabilities."""
    right, faults, scores = 0, [], []
    for i, (text, label) in enumerate(zip(inputs.texts, inputs.labels, strict=True)):
        logits = checkpoint.run(text)[0]
        scores.append(float(logits.softmax(0).max()))
        if label is not None:
            right += int(logits.argmax()) == label
            if int(logits.argmax()) != label:
                faults.append(f"text {i}")
    return Measured(right, len(inputs.labels) - inputs.labels.count(None), tuple(faults), tuple(scores))


Pictures = tuple[Any, ...]


def _encoded(checkpoint: Checkpoint, prompt: str, images: Pictures, videos: Pictures) -> dict[str, Tensor]:
    """What the model is given: ids (1, length), and pixels where there are pictures."""
    ids = checkpoint.tokenizer(prompt).input_ids
    more = {}
    if checkpoint.vision:
        pictures = checkpoint.vision.read(images, videos)
        ids = list(checkpoint.vision.expanded(tuple(ids), pictures))
        more = checkpoint.vision.arguments([pictures]) | checkpoint.vision.token_types(torch.tensor([ids]))
    return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long), **more}


def _continued(
    checkpoint: Checkpoint, prompt: str, expected: list[int], images: Pictures = (), videos: Pictures = ()
) -> list[float]:
    """Log-probabilities of the expected tokens if greedy decoding finds each of them, else those before the fault."""
    encoded = _encoded(checkpoint, prompt, images, videos)
    made = checkpoint.model.generate(
        **encoded, max_new_tokens=len(expected), do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    new = made.sequences[0, encoded["input_ids"].shape[1] :].tolist()
    logs = [float(step[0].float().log_softmax(0).max()) for step in made.logits]
    wrong = next((i for i, (a, b) in enumerate(zip(new, expected, strict=False)) if a != b), len(new))
    return logs[:wrong]


def measure_generation(checkpoint: Checkpoint, inputs: generation.GenerationInputs) -> Measured:
    """Greedy decoding must find every token of the known text, and the end or the stop word after it."""
    right, faults, scores = 0, [], []
    cases = [(p, c, None) for p, c in zip(inputs.prompts, inputs.continuations, strict=True) if c is not None]
    known: list[tuple[str, str, str | None]] = [*cases]
    known += [
        (stop.prompt, stop.text, " " + stop.stop_word if stop.stop_word else "<|im_end|>") for stop in inputs.stops
    ]
    for i, (prompt, text, stop) in enumerate(known):
        expected = checkpoint.tokenizer(text + (stop or "")).input_ids
        logs = _continued(checkpoint, prompt, expected)
        scores.extend(logs)
        right += len(logs) == len(expected)
        if len(logs) != len(expected):
            faults.append(f"prompt {i} at token {len(logs)} of {len(expected)}")
    return Measured(right, len(known), tuple(faults), tuple(scores))


def measure_multimodal(checkpoint: Checkpoint, inputs: multimodal.MultimodalInputs) -> Measured:
    """Greedy decoding must read out every colour, and end where it is to read once."""
    right, faults, scores = 0, [], []
    ended = inputs.ended
    cases = [
        *zip(inputs.prompts, inputs.images, inputs.videos, inputs.continuations, strict=True),
        *zip(ended.prompts, ended.images, ended.videos, (text + scenes.END for text in ended.texts), strict=True),
    ]
    for i, (prompt, images, videos, text) in enumerate(cases):
        expected = checkpoint.tokenizer(text).input_ids
        logs = _continued(checkpoint, prompt, expected, images, videos)
        scores.extend(logs)
        right += len(logs) == len(expected)
        if len(logs) != len(expected):
            faults.append(f"prompt {i} at token {len(logs)} of {len(expected)}")
    return Measured(right, len(cases), tuple(faults), tuple(scores))


TASKS: dict[str, tuple[Any, Any]] = {
    "embedding": (embedding, measure_embedding),
    "rerank": (rerank, measure_rerank),
    "classification": (classification, measure_classification),
    "reward": (reward, measure_reward),
    "generation": (generation, measure_generation),
    WINDOWED: (windowed, measure_generation),
    "multimodal": (multimodal, measure_multimodal),
}


def measure(checkpoint: Checkpoint, inputs: Any) -> Measured:
    """Measures with the inputs of the checkpoint's own task."""
    measured: Measured = TASKS[checkpoint.kind][1](checkpoint, inputs)
    return measured
