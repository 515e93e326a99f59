"""A transformers model loaded on a torch device: tokenising, batching, and proof of what ran."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from packaging.version import Version
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationMixin,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from conformance import checkpoint
from conformance.engines import chunked
from conformance.engines import device as devices
from conformance.engines.batching import batches, pad
from conformance.engines.chosen_kernels import registered, spelt
from conformance.engines.compiled import FLEX, CompiledCounter, never_unfused
from conformance.engines.kernels import KernelCounter
from conformance.engines.vision import PLACES_TEXT, Vision
from conformance.runner import Effective, LoadRequest, Runner, TokenIds, Unavailable

if TYPE_CHECKING:
    from typing_extensions import Self

    from conformance.runner import Floats

OLDEST = "4.56"

_PAID_FOR_ONCE = (GenerationMixin, PreTrainedModel, PreTrainedTokenizerFast)
"""Transformers imports on first use. Naming these has the server do it once, not every forked worker (1.6 s each)."""

_AUTO_CLASS = {
    "embedding": AutoModel,
    "rerank.decoder": AutoModelForCausalLM,
    "rerank.cross_encoder": AutoModelForSequenceClassification,
    "classification": AutoModelForSequenceClassification,
    "reward": AutoModelForSequenceClassification,
    "generation": AutoModelForCausalLM,
    "multimodal": AutoModelForImageTextToText,
}


def auto_class(role: str, folder: Path | None = None) -> Any:
    """The transformers class that loads a model for `role`, or for the task before the role's dot.

    A role from another package is not known here; its models are loaded by the class that config.json in `folder`
    names. ValueError where that is none of transformers'.
    """
    found = _AUTO_CLASS.get(role) or _AUTO_CLASS.get(role.split(".")[0])
    if found is None:
        names = checkpoint.config(folder).get("architectures") or [""] if folder else [""]
        found = getattr(transformers, str(names[0]), None)
        if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
            raise ValueError(
                f"role {role!r} is none of {', '.join(_AUTO_CLASS)}, and {folder}/config.json names no model class of "
                f"transformers as its architecture: {names[0]!r}"
            )
    return found


class LoadedModel(Runner):
    """What every answer needs; `TransformersRunner` asks the questions."""

    def __init__(self, request: LoadRequest) -> None:
        super().__init__(request)
        self.batch_size = int(request.options.get("batch_size", 32))
        self._compiles = FLEX in (request.attention, request.vision_attention)
        self._batch_form = str(request.options.get("batch", ""))
        self._chunk = int(request.options.get(chunked.OPTION, 0))  # 0: prompts are read whole
        self.torch_dtype: torch.dtype = getattr(torch, request.dtype)
        self._forwards = 0

    def __enter__(self) -> Self:
        request = self.request
        devices.require(request.device)
        if Version(transformers.__version__) < Version(OLDEST):
            raise Unavailable(f"transformers {transformers.__version__} is too old; {OLDEST} or newer is needed")
        if self._compiles:
            never_unfused()
        devices.set_precision_switches(request.matmul, request.convolution)
        self.device = torch.device(request.device)
        self._own_code = bool(request.parameters.get("trust_remote_code", False))
        self.tokenizer = AutoTokenizer.from_pretrained(
            request.folder, local_files_only=True, trust_remote_code=self._own_code
        )
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.model = self._load()
        if getattr(self.model.config, "pad_token_id", None) is None:  # classifiers find a row's last token by it
            self.model.config.pad_token_id = self.tokenizer.pad_token_id
        self.model.register_forward_pre_hook(self._count_forward)
        # Renamed in transformers 5, where the old name warns.
        known = inspect.signature(self.model.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        self._can_keep_logits = "logits_to_keep" in known
        self.vision: Vision | None = None
        if request.role == "multimodal":
            places_text = request.options.get("positions") == PLACES_TEXT
            self.vision = Vision(self.model, Path(request.folder), places_text=places_text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self.model
        devices.release(self.device)

    def _load(self) -> Any:
        request = self.request
        kind = auto_class(request.role, Path(request.folder))
        text = registered(request.attention)
        attention: str | dict[str, str] = text
        if request.vision_attention not in ("", request.attention):
            attention = {"text_config": text, "vision_config": registered(request.vision_attention)}
        model, report = kind.from_pretrained(
            request.folder,
            dtype=self.torch_dtype,
            attn_implementation=attention,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=self._own_code,
            output_loading_info=True,
        )
        missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
        if missing:
            raise ValueError(
                f"{request.folder} holds no weights for {', '.join(missing[:5])}"
                f"{' and others' if len(missing) > 5 else ''}; {kind.__name__} would have made them up"
            )
        return model.to(self.device).eval()

    def _tokenize(
        self, first: list[str], second: list[str] | None = None, *, special: bool = True
    ) -> tuple[TokenIds, ...]:
        if not first:
            return ()
        limit = self.request.parameters.get("max_tokens")
        rows = self.tokenizer(
            first, second, truncation=limit is not None, max_length=limit, padding=False, add_special_tokens=special
        )["input_ids"]
        return tuple(tuple(row) for row in rows)

    def _pad(self, rows: Sequence[Sequence[int]], side: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return pad(rows, int(self.tokenizer.pad_token_id), side, self.device)

    def _forward_all(
        self,
        rows: Sequence[TokenIds],
        read: Callable[[Any, torch.Tensor], torch.Tensor],
        *,
        side: str | None = None,
        **arguments: Any,
    ) -> tuple[Floats, Effective]:
        """One forward pass for every prompt, in batches; `read(output, mask)` gives the rows that are kept."""
        found: list[Any] = [None] * len(rows)
        is_decoder = any(getattr(module, "is_causal", False) for module in self.model.modules())
        with self._observing() as seen:
            for batch in self._batches([len(row) for row in rows]):
                inputs, mask, positions = self._pad([rows[i] for i in batch], side or self.tokenizer.padding_side)
                if is_decoder:
                    arguments = {**arguments, "position_ids": positions, "use_cache": False}
                with self._computing():
                    if self._chunk:
                        how = {"size": self._chunk, "cache": self._cache_name}
                        output = chunked.states(self.model, inputs, mask, positions, **how)
                    else:
                        output = self.model(input_ids=inputs, attention_mask=mask, **arguments)
                    values = read(output, mask)
                for row, index in enumerate(batch):
                    found[index] = values[row].cpu().numpy()
        return np.stack(found) if found else np.zeros((0, 0), np.float32), seen.effective()

    def _batches(self, lengths: Sequence[int], *, extra: int = 0) -> Iterator[list[int]]:
        return batches(lengths, self.batch_size, extra=extra, form=self._batch_form)

    def _computing(self) -> AbstractContextManager[Any]:
        """What is active around the model's passes; the reference widens here."""
        return nullcontext()

    @contextmanager
    def _observing(self) -> Iterator[Seen]:
        self._forwards = 0
        if self.vision:
            self.vision.sequences = 0
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            counters = [stack.enter_context(KernelCounter(self.request.device)).counts]
            if self._compiles:
                counters.append(stack.enter_context(CompiledCounter(self.request.device)).counts)
            yield Seen(self, counters)

    def _count_forward(self, *_: Any) -> None:
        self._forwards += 1

    def _widest(self, values: torch.Tensor) -> torch.Tensor:
        return values if values.dtype == torch.float64 else values.float()

    def _end_token_ids(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id
        if ends is None:
            ends = self.model.config.eos_token_id
        return [] if ends is None else list(ends) if isinstance(ends, (list, tuple)) else [int(ends)]


class Seen:
    """What was seen while a runner was observed."""

    def __init__(self, runner: LoadedModel, counters: Sequence[Counter[str]]) -> None:
        self._runner, self._counters = runner, counters

    def effective(self) -> Effective:
        model, vision = self._runner.model, self._runner.vision
        text = model.config.get_text_config()
        dtypes = {str(weight.dtype).removeprefix("torch.") for weight in model.parameters()}
        return Effective(
            dtype="+".join(sorted(dtypes)),
            attention=spelt(str(text._attn_implementation)),
            kernels=dict(sum(self._counters, Counter())),
            layers=int(text.num_hidden_layers),
            forwards=self._runner._forwards,
            vision=vision.effective() if vision else None,
        )
