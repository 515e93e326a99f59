"""What the adapter adds to a vLLM worker, in whatever process that lives.

`Witness` becomes a part of the worker's class (vLLM's `worker_extension_cls`) and counts the attention calls. It is
named to vLLM as text, and spoken to through `collective_rpc` in plain lists and numbers, so that nothing is pickled.
"""

from __future__ import annotations

from typing import Any

from conformance.engines.vllm_rows import ROWS, Row, reading
from conformance.engines.vllm_watch import Watch


class Witness:
    """A part of the worker: `self` is the worker, with its `model_runner`."""

    model_runner: Any
    vllm_config: Any
    _conformance_watch: Watch

    def conformance_watch(self, features: bool = False) -> None:
        """Count from now on; with `features`, keep what the vision tower hands on."""
        if not hasattr(self, "_conformance_watch"):
            config = self.vllm_config.model_config
            dtype, head = (
                str(each).removeprefix("torch.") for each in (config.dtype, getattr(config, "head_dtype", config.dtype))
            )
            self._conformance_watch = Watch(
                self.model_runner.get_model(), dtype, head, is_replayed=self._replays_graphs()
            )
        self._conformance_watch.reset()
        self._conformance_watch.keeps_features = features

    def _replays_graphs(self) -> bool:
        mode = getattr(self.vllm_config.compilation_config, "cudagraph_mode", None)
        is_cpu = self.model_runner.device.type == "cpu"  # there are none, whatever the configuration says
        return not is_cpu and mode is not None and bool(mode.has_full_cudagraphs())

    def conformance_seen(self) -> dict[str, Any]:
        """What ran since `conformance_watch`."""
        return self._conformance_watch.seen()

    def conformance_features(self) -> list[list[list[float]]]:
        """What the vision tower handed on since then, pass by pass: [patches, width]."""
        return [each.tolist() for each in self._conformance_watch.features]

    def conformance_force(
        self, firsts: list[int], tokens: list[list[int]], candidates: list[list[list[int]]], prefill: bool
    ) -> None:
        """Force `tokens` behind prompts of `firsts` tokens; with `prefill` they are part of what is prefilled."""
        ROWS.clear()
        ROWS.update({i: Row(*each, prefill) for i, each in enumerate(zip(firsts, tokens, candidates, strict=True))})
        runner = self.model_runner
        own = "_get_prompt_logprobs_dict"  # the second runner has none: there vLLM is asked for chosen ids
        if prefill and not hasattr(runner, "_conformance_read") and hasattr(runner, own):
            runner._conformance_read = True
            setattr(runner, own, reading(runner, getattr(runner, own)))

    def conformance_forced(self) -> list[list[list[float]]]:
        """The logprobs that were read, by row and position; what was not reached is missing."""
        found = [[row.found[at] for at in sorted(row.found)] for _, row in sorted(ROWS.items())]
        ROWS.clear()
        return found
