"""What a suite is made of: promises (test methods), the observations they judge, and the bench a case works at.

A suite is a `unittest.TestCase` that names no device, engine or kernel. It declares observations, small functions
that ask a runner for something, and promises, test methods that judge what was observed against the reference and
the yardstick. The same observation functions produce all three: the engine under test answers the first, the
reference (fp64 on the CPU) the second, and the yardstick (the served dtype on the CPU) the third.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from conformance import criteria
from conformance.judgement import Judgement
from conformance.runner import Effective, NotSupported, Observation, Runner
from conformance.verdict import Verdict
from conformance.workload import Workload

if TYPE_CHECKING:
    from conformance.criteria.observed import VisionRequested
    from conformance.profile import Claim, Variation
    from conformance.tokenization import Tokenizer

Method = TypeVar("Method", bound=Callable[..., Any])
Static = TypeVar("Static", bound=Callable[..., Observation])


@dataclass(frozen=True)
class Requirement:
    """What a test method promises: a stable id that no code name leads to, and one sentence in MUST form.

    With `answers`, the promise is about right answers known beforehand, so it is planned only for models that the
    catalogue says they hold for; with `directions`, about the directions of known faults, and planned only for models
    that the catalogue says come with them, unless they are asked for. `parameters` single it out for conditions, and
    say what the profile has to claim for it: batch, scale, softcap, window, deterministic, masked_rows, denormals,
    variant.
    """

    id: str
    statement: str
    answers: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    directions: bool = False


def requirement(
    id: str,
    statement: str,
    *,
    answers: bool = False,
    directions: bool = False,
    parameters: Mapping[str, Any] | None = None,
) -> Callable[[Method], Method]:
    """Mark a test method as one promise."""

    def mark(method: Method) -> Method:
        method.requirement = Requirement(id, statement, answers, parameters or {}, directions)  # type: ignore[attr-defined]
        return method

    return mark


@dataclass(frozen=True)
class Sources:
    """Which sources beside the engine answer an observation."""

    reference: bool
    yardstick: bool


def _no_variant(name: str) -> Runner:
    raise NotSupported(f"a variant ({name!r}) was asked of what has none, a reference or a runner without a profile")


@dataclass(frozen=True)
class Ask:
    """What an observation function may use: the runner to ask, the suite's inputs, the model, the reference.

    `settings` are the caps that quirks put on this case (`max_tokens`, `top_k`); `reference` answers with the
    reference's observations, for questions that depend on them (forced continuations), and `own` with those of the
    source that is being asked. `claim` is the profile's for the attention backend; None for a reference.
    `variant` gives the runner of one of the engine's variants by name; it is loaded when it is asked, in place of
    `runner`, which is loaded again when it is asked itself. NotSupported where the profile claims none of that name.
    """

    runner: Runner
    inputs: Any
    parameters: Mapping[str, Any]
    settings: Mapping[str, Any]
    tokenizer: Tokenizer
    reference: Any
    own: Any
    claim: Claim | None = None
    variant: Callable[[str], Runner] = _no_variant


def observation(*, reference: bool = True, yardstick: bool = True) -> Callable[[Static], Static]:
    """Declare an observation of the suite: a static or class method from an `Ask` to what the runner answered.

    `reference` and `yardstick` say whether the suite compares it with the reference and with the yardstick, which
    are then computed (or shipped) for it.
    """

    def mark(method: Static) -> Static:
        method.__func__.observation = Sources(reference, yardstick)  # type: ignore[attr-defined]
        return method

    return mark


class Answers:
    """The observations from one source, by name, each asked for once; an error is an answer, and is kept."""

    def __init__(self, ask: Callable[[str], Any], is_final: Callable[[Exception], bool] = lambda _: True) -> None:
        self._ask = ask
        self._is_final = is_final
        self._known: dict[str, Any] = {}
        self._errors: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._errors:
            raise self._errors[name]
        if name not in self._known:
            try:
                self._known[name] = self._ask(name)
            except Exception as error:
                if self._is_final(error):
                    self._errors[name] = error
                raise
        return self._known[name]


@dataclass
class Bench:
    """Where a case works: the answers of engine, reference and yardstick on one target and one model."""

    observed: Answers
    reference: Answers
    yardstick: Answers
    inputs: Any
    dtype: str
    precision: str  # what the profile claims of attention backend and dtype: "ieee", "fused", "eager" ...
    attention: str
    kernels: Sequence[str]  # the operators that the profile expects as evidence, fnmatch patterns
    tokenizer: Tokenizer
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    layers: int | None = None  # the model's attention layers, where its configuration says
    vision: VisionRequested | None = None  # None for a model without a vision tower
    claim: Claim | None = None  # the profile's for the attention backend; None where there is no profile
    variants: Mapping[str, Variation] = field(default_factory=dict)  # that the profile claims of the engine
    directions: Mapping[str, Any] = field(default_factory=dict)  # of known faults: injection -> D


class Underpowered(AssertionError):
    """The inputs could not have shown a fault, so nothing was shown."""


class ConformanceSuite(unittest.TestCase):
    """One task. Subclasses declare a role, inputs, observations and promises."""

    role: ClassVar[str]
    """What a model is loaded for; the catalogue's models say which roles they play."""
    causal: ClassVar[bool] = True
    """False where attention is bidirectional: attention backends without encoder support cannot run it."""
    against_itself: ClassVar[bool] = False
    """True where the engine is held against itself alone, so that what is wrong with all of its answers goes unseen."""
    single_calls: ClassVar[bool] = False
    """True where the observations are of single kernel calls, so that the model's layers say nothing about them."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """The runner's capabilities that the observations use."""
    seconds: ClassVar[float | None] = None
    """How long the suite takes for one embedded model on one target on a CPU with two cores, loading included: the
    estimate of a run until earlier runs have shown better. A profile may say otherwise for its backend."""
    workload: ClassVar[Workload | None] = None
    """How much the largest observation asks of a model; without it, memory and time are not estimated beforehand."""

    bench: Bench

    @staticmethod
    def inputs() -> Any:
        """The suite's deterministic inputs."""
        raise NotImplementedError

    @staticmethod
    def fresh(seed: int, factor: int) -> Any:
        """Other inputs of the same kind, `factor` times as many, by which a figure in the grey zone is decided.

        Raises NotImplementedError where the suite has none: then such a figure is a failure.
        """
        raise NotImplementedError

    @staticmethod
    def directed(answers: Any) -> Any:
        """The numbers in which the directions of known faults are looked for: float [n, ...], read from the answers of
        engine, reference, yardstick or a faulty reference. Only suites with a promise about directions have some.
        """
        raise NotImplementedError

    def setUp(self) -> None:
        """Start without judgements. Raises RuntimeError where no plan made the case."""
        if not hasattr(self, "bench"):
            raise RuntimeError(
                f"{type(self).__qualname__} has no backend to test: name the module ({type(self).__module__}), so that "
                "unittest takes the plan's cases"
            )
        self.judgements: list[Judgement] = []
        self.effective: Effective | None = None

    @classmethod
    def observations(cls) -> dict[str, Sources]:
        """The observations that the suite declares, by name, in the order of their declaration."""
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
        return {name: found for name in names if (found := getattr(getattr(cls, name), "observation", None))}

    @classmethod
    def promises(cls) -> tuple[str, ...]:
        """The names of the test methods that carry a requirement, in the order of their declaration."""
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
        return tuple(name for name in names if hasattr(getattr(cls, name), "requirement"))

    @property
    def reference(self) -> Any:
        """The reference's observations, by name."""
        return self.bench.reference

    @property
    def yardstick(self) -> Any:
        """The yardstick's observations, by name."""
        return self.bench.yardstick

    @property
    def observed(self) -> Any:
        """The engine's observations, by name; using one first proves that what was requested is what ran."""
        return _Proven(self)

    def observe(self, name: str) -> Observation:
        """The engine's observation `name`, after the case was failed if another kernel or dtype produced it."""
        found: Observation = getattr(self.bench.observed, name)
        bench = self.bench
        self.effective = found.effective
        self.judge(
            criteria.observed.ran_as_requested(
                found.effective,
                dtype=bench.dtype,
                attention=bench.attention,
                kernels=bench.kernels,
                layers=None if self.single_calls else bench.layers,
                vision=None if self.single_calls else bench.vision,
            )
        )
        return found

    def judge(self, judgement: Judgement) -> None:
        """Record a judgement; raise `AssertionError` on a failure and `Underpowered` where nothing was shown."""
        if judgement in self.judgements:
            return
        self.judgements.append(judgement)
        if judgement.verdict is Verdict.UNDERPOWERED:
            raise Underpowered(judgement.message)
        if judgement.verdict is not Verdict.PASS:
            raise self.failureException(judgement.message)

    def judge_directions(self) -> None:
        """Judge that the engine's error points in the direction of no known fault."""
        self.judge(
            criteria.matched.is_no_known_fault(
                x=self.directed(self.observed),
                r=self.directed(self.reference),
                e=self.directed(self.yardstick),
                directions=self.bench.directions,
            )
        )


class _Proven:
    def __init__(self, case: ConformanceSuite) -> None:
        self._case = case

    def __getattr__(self, name: str) -> Observation:
        return self._case.observe(name)
