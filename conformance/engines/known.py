"""The engines that a profile may name, whether or not an adapter for them is installed."""

from __future__ import annotations

KNOWN_ENGINES = ("transformers", "vllm", "sglang", "ipex", "openai")

INJECTED_BY = {
    "conformance.engines.transformers:TransformersRunner": (
        "conformance.faults.runner:FaultyRunner",
        "conformance.nulls.runner:NullRunner",
    )
}
"""Runners whose engine can be changed, and those that inject a fault and a null. Others are measured as they are."""
