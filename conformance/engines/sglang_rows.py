"""Rows of forced tokens, in the process of a SGLang scheduler: what is put in a sampled token's place, what is read.

SGLang calls `Forced` with the logits that it is about to sample from, unmodified, and with what each request brought
along. Numbers are handed over in a file, line by line: what SGLang itself reports of a position is what was forced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor


class Forced(CustomLogitProcessor):  # type: ignore[misc]
    """Reads the unmodified logits of the rows, then leaves one token possible."""

    def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> torch.Tensor:
        for place, row in enumerate(custom_param_list or ()):
            at = len(row["__req__"].output_ids)
            if at < len(row["tokens"]):
                # In float64 on the CPU: the rounding under test is the model's, not that of this function.
                logprobs = torch.log_softmax(logits[place].to("cpu", torch.float64), dim=-1)
                found = logprobs[torch.tensor(row["candidates"][at])].tolist()
                with Path(row["file"]).open("a", encoding="ascii") as file:
                    file.write(f"{json.dumps([row['row'], at, found])}\n")
                logits[place] = float("-inf")
                logits[place, row["tokens"][at]] = 0.0
        return logits
