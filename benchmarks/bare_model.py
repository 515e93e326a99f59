"""One model on one target in plain transformers and torch, asked as the default run asks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoTokenizer

ROWS, PADDED_TOKENS, SCORES = 32, 20_000, 8_000_000
"""Bounds of a batch: those of the run, written down again, because the bare script uses none of its engines."""

NEW_TOKENS, TOP = 128, 20

Rows = Sequence[Sequence[int]]


class Asked:
    """One model on one target, loaded by the transformers class `auto` for the item of work."""

    def __init__(self, work: Mapping[str, Any], auto: Any, *, is_decoder: bool) -> None:
        self.parameters: Mapping[str, Any] = work["parameters"]
        self.folder = Path(work["folder"])
        self._references = self.folder / "references"
        self._parts = {name: read_part(self._references / f"{name}.safetensors") for name in work["parts"]}
        self.tokenizer = AutoTokenizer.from_pretrained(work["folder"], local_files_only=True)
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.model = auto.from_pretrained(
            work["folder"],
            dtype=getattr(torch, work["dtype"]),
            attn_implementation=work["attention"],
            local_files_only=True,
            use_safetensors=True,
        ).eval()
        self.is_decoder = is_decoder
        self.forwards = 0
        self.model.register_forward_pre_hook(self._count)
        self.known: dict[str, Any] = {}  # answers, where a later question builds on them

    def part(self, name: str) -> dict[str, Any]:
        """A shipped part, read now or before."""
        if name not in self._parts:
            self._parts[name] = read_part(self._references / f"{name}.safetensors")
        return self._parts[name]

    def _count(self, *_: Any) -> None:
        self.forwards += 1

    def tokens(self, first: list[str], second: list[str] | None = None, *, special: bool = True) -> list[list[int]]:
        limit = self.parameters.get("max_tokens")
        found: list[list[int]] = self.tokenizer(
            first, second, truncation=limit is not None, max_length=limit, add_special_tokens=special
        )["input_ids"]
        return found

    def padded(self, rows: Rows, side: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        longest = max(len(row) for row in rows)
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            where = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
            ids[index, where] = torch.tensor(row, dtype=torch.long)
            mask[index, where] = 1
        return ids, mask, (mask.cumsum(1) - 1).clamp(min=0)

    def once(
        self, rows: Rows, read: Callable[[Any, torch.Tensor], torch.Tensor], side: str | None = None, **arguments: Any
    ) -> Any:
        """One pass for all rows, in batches; `read(output, mask)` is what is kept of each."""
        found: list[Any] = [None] * len(rows)
        for batch in batches([len(row) for row in rows]):
            ids, mask, positions = self.padded([rows[i] for i in batch], side or self.tokenizer.padding_side)
            if self.is_decoder:
                arguments |= {"position_ids": positions, "use_cache": False}
            values = read(self.model(input_ids=ids, attention_mask=mask, **arguments), mask)
            for index, value in zip(batch, values, strict=True):
                found[index] = value.numpy()
        return np.stack(found)

    def generate(
        self,
        rows: Rows,
        max_tokens: int = NEW_TOKENS,
        stops: Sequence[int] = (),
        beside: Callable[[list[int], torch.Tensor], dict[str, torch.Tensor]] = lambda batch, ids: {},
    ) -> list[list[int]]:
        """Greedy tokens of all rows, with the logprobs of every position's best tokens.

        `beside(batch, ids)` is what the model is given beside the ids of a batch.
        """
        end = self.model.generation_config.eos_token_id
        ends = {*(end if isinstance(end, list) else [end]), *stops}
        found: list[list[int]] = [[]] * len(rows)
        for batch in batches([len(row) for row in rows], extra=max_tokens):
            ids, mask, _ = self.padded([rows[i] for i in batch], "left")
            output = self.model.generate(
                ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=max_tokens,
                eos_token_id=sorted(ends),
                pad_token_id=self.tokenizer.pad_token_id,
                return_dict_in_generate=True,
                output_logits=True,
                **beside(batch, ids),
            )
            torch.stack([logprobs(step) for step in output.logits], dim=1).topk(TOP, dim=-1)
            for index, row in zip(batch, output.sequences[:, ids.shape[1] :].tolist(), strict=True):
                at = next((at for at, token in enumerate(row) if token in ends), len(row))
                found[index] = row[: at + 1]
                self.tokenizer.decode(row[:at], skip_special_tokens=True)
        return found


def batches(lengths: Sequence[int], extra: int = 0) -> Iterator[list[int]]:
    """The run's batches: longest first, padded little, of bounded size; `extra` tokens are generated after each."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while order:
        longest = max(1, lengths[order[0]])
        batch = order[: max(1, min(ROWS, PADDED_TOKENS // (longest + extra), SCORES // longest**2))]
        if not extra:
            batch = [index for index in batch if 2 * lengths[index] >= longest] or batch[:1]
        yield batch
        order = order[len(batch) :]


def logprobs(logits: torch.Tensor) -> torch.Tensor:
    """In float64, as the run has them."""
    return torch.log_softmax(logits.double(), dim=-1)


def read_part(file: Path) -> dict[str, Any]:
    """A shipped part, {observation: {field: value}}: a JSON tree beside arrays, both in one safetensors file."""
    with safe_open(file, framework="numpy") as content:
        tree = json.loads(content.metadata()["tree"])
        arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    return {name: _value(told["fields"], arrays) for name, told in tree["dict"].items()}


def _value(tree: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"array"}:
        return arrays[f"a{tree['array']}"]
    if set(tree) == {"tuple"}:
        return [_value(item, arrays) for item in tree["tuple"]]
    inner = tree.get("dict") or tree.get("fields") or tree
    return {key: _value(item, arrays) for key, item in inner.items()}
