"""The engines that a profile may name, whether or not an adapter for them is installed."""

from __future__ import annotations

KNOWN_ENGINES = ("transformers", "vllm", "sglang", "ipex", "openai")

VARIED_BY = {"conformance.engines.transformers:TransformersRunner": "conformance.nulls.runner:NullRunner"}
"""Runners whose engine the null library can vary, and the runner that does. Other engines are measured as they are."""
