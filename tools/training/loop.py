"""The training loop: short texts first, then all lengths, a batch of about the same number of tokens each."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .task import Task

WIDTHS = (24, 48, 96, 192, 384, 768, 1270)
SHARES = (20, 20, 20, 15, 12, 7, 6)
"""How often texts of up to so many tokens come, in percent."""

SHORT_UNTIL, SHORT = 0.15, 3
"""Until this share of the training only the first so many widths come."""

MOST_ROWS = 768


@dataclass(frozen=True)
class Settings:
    """Length and pace of a training."""

    steps: int
    rate: float
    tokens: int = 24_000
    """Tokens of a batch; long texts make few rows."""

    warmup: int = 200
    seconds: float = math.inf
    """The schedule also ends after this time, so that a slow device makes fewer steps, not a worse ending."""


@dataclass(frozen=True)
class Progress:
    """Where a training ended."""

    steps: int
    loss: float
    right: float
    seconds: float


def _optimizer(task: Task, rate: float, device: str) -> torch.optim.Optimizer:
    parameters = [p for module in (task.model, task.probes) for p in module.parameters()]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.02},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=device == "cuda")


def train(task: Task, settings: Settings, device: str, seed: int, say: str) -> Progress:
    """Trains `task.model` in place, in bfloat16 arithmetic on float32 weights; returns the last 200 steps' means."""
    choose = random.Random(seed)
    optimizer = _optimizer(task, settings.rate, device)
    modules = nn.ModuleList([task.model, task.probes])
    modules.train()
    begin = time.monotonic()
    recent: list[Tensor] = []
    progress, step = 0.0, 0
    while progress < 1.0:
        widths = SHORT if progress < SHORT_UNTIL else len(WIDTHS)
        width = choose.choices(WIDTHS[:widths], SHARES[:widths])[0]
        rate = min(1.0, (step + 1) / settings.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * rate
        with torch.autocast(device, dtype=torch.bfloat16):
            loss, right = task.loss(width, max(8, min(MOST_ROWS, settings.tokens // (width + task.frame))), progress)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        seconds = time.monotonic() - begin
        progress = max(step / settings.steps, seconds / settings.seconds)
        recent = [*recent[-199:], torch.stack((loss.detach(), right))]
        if step % 250 == 0 or progress >= 1.0:
            losses, rights = torch.stack(recent).mean(0).tolist()
            print(f"{say} step {step} {seconds:.0f} s loss {losses:.4f} right {rights:.4f}", flush=True)
    return Progress(step, losses, rights, seconds)
