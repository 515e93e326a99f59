"""Which runs make a reference and its yardsticks, and the comparison that picks the worst legal variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from conformance.reference.sample import OwnError, Recording, own_errors, values_of
from conformance.runner import LoadRequest, Observation, Runner
from conformance.suite import Answers, Ask, ConformanceSuite

if TYPE_CHECKING:
    from conformance.tokenization import Tokenizer

RUNNER = "conformance.reference.runner:ReferenceRunner"
REFERENCE = "reference"

StartRunner = Callable[[LoadRequest], AbstractContextManager[Runner]]


@dataclass(frozen=True)
class Variant:
    """One legal way to run the model on the CPU."""

    attention: str = "eager"
    vision_attention: str = ""  # the same
    options: Mapping[str, Any] = field(default_factory=dict)


_ALONE, _PADDED = Variant(options={"batch_size": 1}), Variant(options={"batch_size": 32})
_FUSED, _TF32, _FP16_ACC = "conformance_ideal_fused", "conformance_tf32", "conformance_fp16_acc"

YARDSTICKS: dict[tuple[str, str], tuple[Variant, ...]] = {
    # 16 bit: how wrong an honest kernel of the claimed class is, alone and in a padded batch.
    **{(dtype, "eager"): (_ALONE, _PADDED) for dtype in ("bfloat16", "float16")},
    **{
        (dtype, "fused"): (replace(_ALONE, attention=_FUSED), replace(_PADDED, attention=_FUSED))
        for dtype in ("bfloat16", "float16")
    },
    **{
        (dtype, "fp16-acc"): (replace(_ALONE, attention=_FP16_ACC), replace(_PADDED, attention=_FP16_ACC))
        for dtype in ("bfloat16", "float16")
    },
    # float32: the worst legal variant, because one ulp in one rotary frequency already outweighs a sum's rounding.
    ("float32", "ieee"): (
        _ALONE,
        _PADDED,
        Variant(options={"batch_size": 32, "frequency_ulps": 1}),
        Variant(options={"batch_size": 32, "frequency_ulps": -1}),
    ),
    # TF32's rounding outweighs an ulp of a frequency by far.
    ("float32", "tf32"): (replace(_ALONE, attention=_TF32), replace(_PADDED, attention=_TF32)),
}
"""The variants behind each (dtype, claimed precision); of each observation, the one furthest from the reference."""

SHIPPED = tuple(key for key in YARDSTICKS if key[1] not in ("tf32", "fp16-acc"))
"""The yardsticks that come with the embedded models; no profile here claims the others."""


_TOWER, _REDUCED = "-vision-", "-reduced-"


def claimed(precision: str, vision: str, reduced: Sequence[str] = ()) -> str:
    """One name for what is claimed of the text's attention backend, of the vision tower's, and of other products.

    `reduced` are the products ("matmul", "convolution") that are claimed to be TF32.
    """
    name = precision if vision == precision else f"{precision}{_TOWER}{vision}"
    return name + "".join(f"{_REDUCED}{each}" for each in reduced)


def variants(dtype: str, precision: str) -> tuple[Variant, ...]:
    """The variants behind a claim; KeyError where there are none."""
    attention, *reduced = precision.split(_REDUCED)
    text, _, vision = attention.partition(_TOWER)
    tower = YARDSTICKS[dtype, vision][0].attention if vision else ""
    beside = {"tf32": reduced} if reduced else {}
    return tuple(
        replace(variant, vision_attention=tower, options={**variant.options, **beside})
        for variant in YARDSTICKS[dtype, text]
    )


def part_name(dtype: str, precision: str) -> str:
    """The stored part that holds this yardstick."""
    return f"{dtype}-{precision}"


@dataclass(frozen=True)
class Subject:
    """What is computed: a suite on one model."""

    suite: type[ConformanceSuite]
    request: LoadRequest  # attention, dtype and options are replaced
    tokenizer: Tokenizer


def compute_reference(subject: Subject, start: StartRunner) -> dict[str, Observation]:
    """Every observation of the suite that wants one, in widened fp64, one prompt at a time."""
    request = replace(
        subject.request,
        device="cpu",
        dtype="float64",
        attention="eager",
        vision_attention="",
        options={"batch_size": 1, "widen": True},
    )
    with start(request) as runner:
        answers = answers_of(subject, runner)
        return {name: getattr(answers, name) for name, wants in subject.suite.observations().items() if wants.reference}


def compute_narrow_reference(
    subject: Subject, start: StartRunner
) -> tuple[dict[str, Observation], dict[str, OwnError]]:
    """The reference in float32, for a host without the memory for fp64, and its own error on a sample.

    Raises UncheckedReference where the suite's observations cannot be sampled.
    """
    request = replace(
        subject.request,
        device="cpu",
        dtype="float32",
        attention="eager",
        vision_attention="",
        options={"batch_size": 1},
    )
    wanted = subject.suite.observations()
    with start(request) as runner:
        recording = Recording(runner)
        answers = answers_of(subject, cast(Runner, recording))
        found = {name: getattr(answers, name) for name, wants in wanted.items() if wants.reference}
    compared = {name: found[name] for name, wants in wanted.items() if wants.yardstick}
    with start(replace(request, options={**request.options, "widen_by_module": True})) as wide:
        return found, own_errors(compared, recording.calls, wide)


def compute_yardstick(
    subject: Subject, reference: Mapping[str, Observation], dtype: str, precision: str, start: StartRunner
) -> dict[str, Observation]:
    """Every observation that wants a yardstick, each from the variant with the largest pooled error."""
    try:
        legal = variants(dtype, precision)
    except KeyError:
        known = ", ".join(f"{d} {p}" for d, p in YARDSTICKS)
        raise ValueError(
            f"there is no yardstick for {dtype} with the claim {precision!r}; there is one for {known}"
        ) from None
    known_answers = Answers(lambda name: reference[name])
    worst: dict[str, tuple[float, Observation]] = {}
    for variant in legal:
        request = replace(
            subject.request,
            device="cpu",
            dtype=dtype,
            attention=variant.attention,
            vision_attention=variant.vision_attention,
            options=variant.options,
        )
        with start(request) as runner:
            answers = answers_of(subject, runner, known_answers)
            for name, wants in subject.suite.observations().items():
                if not wants.yardstick:
                    continue
                found = getattr(answers, name)
                error = float(np.sqrt(np.nansum((values_of(found) - values_of(reference[name])) ** 2)))
                if name not in worst or error > worst[name][0]:
                    worst[name] = (error, found)
    return {name: found for name, (_, found) in worst.items()}


def answers_of(subject: Subject, runner: Runner, reference: Answers | None = None) -> Answers:
    """The runner's answers to the suite's questions; without a reference, they are it."""

    def ask(name: str) -> Any:
        question = Ask(
            runner=runner,
            inputs=subject.suite.inputs(),
            parameters=subject.request.parameters,
            settings={},
            tokenizer=subject.tokenizer,
            reference=reference or own,
            own=own,
        )
        return getattr(subject.suite, name)(question)

    own = Answers(ask)
    return own
