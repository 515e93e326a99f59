"""The ten checkpoints: which tokenizer, which task, which settings."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedModel

from . import architectures, checking, export, measuring, vocabulary
from .classification import ClassificationTask
from .embedding import EmbeddingTask
from .generation import GenerationTask
from .loop import Settings, train
from .multimodal import MultimodalTask
from .rerank import RerankTask
from .reward import RewardTask
from .sampling import Sampler
from .task import Task
from .windowed import WindowedTask


@dataclass(frozen=True)
class Plan:
    """How a checkpoint is trained and what its tokenizer does."""

    settings: Settings
    end: str = vocabulary.END
    """The token that ends a text of this model."""

    chat: str | None = None
    """The tokenizer's chat template."""

    seed: int = 0
    """A seed that leads to a model without faults; others may end in a worse minimum."""

    @property
    def encoder(self) -> bool:
        return self.end == "</s>"


PLANS: dict[str, Plan] = {
    "embedding-qwen3": Plan(Settings(5300, 1e-3), end=vocabulary.END_OF_TEXT),
    "embedding-xlmr": Plan(Settings(6600, 8e-4), end="</s>"),
    "rerank-qwen3": Plan(Settings(6800, 1.2e-3), chat=vocabulary.CHAT_TEMPLATE, seed=1),
    "rerank-xlmr": Plan(Settings(6000, 7e-4), end="</s>"),
    "classification-qwen2": Plan(Settings(2000, 1e-3), end=vocabulary.END_OF_TEXT),
    "reward-qwen3": Plan(Settings(5000, 1.5e-3), chat=vocabulary.CHAT_TEMPLATE),
    "generation-qwen3": Plan(Settings(4000, 2e-3), chat=vocabulary.CHAT_TEMPLATE),
    "generation-mistral": Plan(Settings(6000, 2e-3)),
    "generation-gemma2": Plan(Settings(3500, 2e-3)),
    "multimodal-qwen2vl": Plan(Settings(12000, 1.5e-3), chat=vocabulary.VISION_CHAT_TEMPLATE),
}


def _task(name: str, model: PreTrainedModel, sampler: Sampler) -> Task:
    kind, encoder = name.split("-")[0], name.endswith("xlmr")
    if kind == "multimodal":
        return MultimodalTask(model, sampler)
    if kind == "embedding":
        return EmbeddingTask(model, sampler, encoder)
    if kind == "rerank":
        return RerankTask(model, sampler, encoder)
    if kind == "classification":
        return ClassificationTask(model, sampler)
    if kind == "reward":
        return RewardTask(model, sampler)
    windowed = measuring.task(name) == measuring.WINDOWED
    return WindowedTask(model, sampler) if windowed else GenerationTask(model, sampler)


def make(name: str, seed: int | None, device: str, steps: int | None = None) -> tuple[Task, Plan]:
    """A fresh model in its task, with its plan, of which `seed` and `steps` replace a part."""
    plan = PLANS[name]
    if steps is not None:
        plan = replace(plan, settings=replace(plan.settings, steps=steps))
    if seed is not None:
        plan = replace(plan, seed=seed)
    torch.manual_seed(plan.seed)
    tokenizer = vocabulary.build(name)
    pad = vocabulary.token_id(tokenizer, "<pad>" if plan.encoder else vocabulary.END_OF_TEXT)
    model = architectures.build(name, tokenizer, pad, vocabulary.token_id(tokenizer, plan.end))
    model.to(device)
    task = _task(name, model, Sampler(tokenizer, pad, device))
    task.probes.to(device)
    return task, plan


def train_one(name: str, output: Path, seed: int | None, device: str, steps: int | None, seconds: float) -> None:
    """Trains `name` and writes its folder; `training.json` in it says how."""
    torch.set_float32_matmul_precision("high")
    task, plan = make(name, seed, device, steps)
    checking.check_suite_texts(task.sampler, name)
    settings = replace(plan.settings, seconds=seconds)
    progress = train(task, settings, device, plan.seed, name)
    folder = output / name
    tokenizer = vocabulary.build(name)
    export.write(folder, task.model.eval(), tokenizer, plan.end, plan.chat)
    record = {
        "seed": plan.seed,
        "steps": progress.steps,
        "tokens_per_batch": settings.tokens,
        "learning_rate": settings.rate,
        "loss": round(progress.loss, 4),
        "right": round(progress.right, 4),
        "seconds": round(progress.seconds),
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    (folder / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
