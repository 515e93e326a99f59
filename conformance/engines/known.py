"""The engines that a profile may name, whether or not an adapter for them is installed."""

from __future__ import annotations

KNOWN_ENGINES = ("transformers", "vllm", "sglang", "ipex", "openai")
