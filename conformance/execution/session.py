"""One suite on one model and target: its bench and its cases, asked of the model that a holder has loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from conformance import checkpoint
from conformance.catalogue import NO_MODEL
from conformance.criteria.observed import VisionRequested
from conformance.criteria.standing import stamped
from conformance.execution.deadline import Deadline
from conformance.execution.fresh import FACTOR, as_fresh, decided, is_grey, undecided, with_fresh_inputs
from conformance.execution.group import Group, claimed_precision, judged_precision
from conformance.execution.holder import LOST, Holder, Load
from conformance.execution.on_demand import OnDemand
from conformance.execution.outcome import Outcome, Recorder, outcome_of
from conformance.execution.references import References
from conformance.judgement import Judgement
from conformance.models.fit import PATIENCE
from conformance.names import did_you_mean
from conformance.plan import Case
from conformance.profile import Variation
from conformance.runner import Effective, NotSupported, Runner
from conformance.suite import Answers, Ask, Bench, ConformanceSuite, Underpowered
from conformance.tokenization import Tokenizer
from conformance.verdict import Verdict


@dataclass(frozen=True)
class Attempt:
    """What became of one test method. `effective` is what ran, None where nothing was observed."""

    outcome: Outcome
    judgements: tuple[Judgement, ...] = ()
    effective: Effective | None = None


class Session:
    """Runs the group's tests. What they ask is loaded by `holder`, which the sessions of a run share."""

    def __init__(self, group: Group, device: str, engine_class: str, holder: Holder, case_seconds: float) -> None:
        self.group = group
        self.suite = group.suite()
        self.load = group.load(device, engine_class)
        self.request = self.load.request
        self._holder = holder
        fit = group.first.fit  # a full-size model on a CPU takes longer than a case of an embedded one may
        self._case_seconds = max(case_seconds, PATIENCE * (fit.engine_s or 0.0) if fit is not None else 0.0)
        self._seconds = self._case_seconds  # of the case that runs
        self._deadline = Deadline.never()
        self._refusal: Exception | None = None  # there is no bench; making one again would not help
        self._bench: Bench | None = None

    @property
    def given_up(self) -> bool:
        """Whether the model crashed too often on this target."""
        return self._holder.gives_up(self.load)

    @property
    def given_up_because(self) -> Outcome:
        """The outcome of a case that is not run any more."""
        return Outcome(Verdict.NOT_RUN, self._holder.given_up_because(self.load))

    def attempt(self, test: str, references: References) -> Attempt:
        """Run one test method; whatever it, the reference or the worker raises becomes the outcome."""
        if self.given_up:
            return Attempt(self.given_up_because)
        found = self._judged(self.suite, test, lambda: self._shared_bench(references))
        return self._decided(test, found, references) if is_grey(found.outcome, found.judgements) else found

    def _decided(self, test: str, grey: Attempt, references: References) -> Attempt:
        """The attempt after a figure in the grey zone was put to fresh prompts."""
        case = next(case for case in self.group.cases if case.test == test)
        try:
            suite = with_fresh_inputs(self.suite, case.id)
            self._holder.release()  # reference and engine never hold memory together
            bench = self._make_bench(suite, references, times=FACTOR)
        except Exception as error:
            return replace(grey, outcome=undecided(grey.outcome, f"{type(error).__name__}: {error}"))
        fresh = self._judged(suite, test, lambda: bench, times=FACTOR)
        judgements = as_fresh(fresh.judgements)
        outcome = decided(grey.outcome, fresh.outcome, judgements)
        return Attempt(outcome, (*grey.judgements, *judgements), fresh.effective or grey.effective)

    def _judged(
        self, suite: type[ConformanceSuite], test: str, make_bench: Callable[[], Bench], *, times: int = 1
    ) -> Attempt:
        """Run one test method of `suite` at a bench; with `times` as many prompts it has as many times as long."""
        judgements: tuple[Judgement, ...] = ()
        effective: Effective | None = None
        error: BaseException | None
        try:
            bench = make_bench()
            self._seconds = times * self._case_seconds
            self._deadline = Deadline.after(self._seconds)
            case = suite(test)
            case.bench = bench
            recorder = Recorder()
            case.run(recorder)
            error = recorder.error
            judgements = tuple(getattr(case, "judgements", ()))  # none where a suite's own setUp failed
            effective = getattr(case, "effective", None)
        except Exception as raised:
            error = raised
        if isinstance(error, LOST):
            self._holder.lose()
        if error is None and not judgements:
            error = Underpowered(f"{test} judged nothing, so it showed nothing; a promise is kept by self.judge(...)")
        judgements = tuple(stamped(each, self.request.device) for each in judgements)
        return Attempt(self.outcome(error), judgements, effective)

    def outcome(self, error: BaseException | None) -> Outcome:
        """What becomes of a case that raised `error`, or nothing."""
        return outcome_of(error)

    def _shared_bench(self, references: References) -> Bench:
        """The bench of all cases of the group, made once; raises what finding or computing the reference raises."""
        if self._refusal is not None:
            raise self._refusal
        if self._bench is None:
            try:
                self._bench = self._make_bench(self.suite, references)
            except Exception as error:
                self._refusal = error
                raise
        return self._bench

    def _make_bench(self, suite: type[ConformanceSuite], references: References, *, times: int = 1) -> Bench:
        """The bench for the inputs of `suite`; `times` as many as its own have no reference in any package."""
        case = self.group.first
        has_files = case.model.tier != NO_MODEL
        if has_files:
            checkpoint.check(case.model.folder)
        reference, yardstick = references.get(
            suite,
            self.request,
            embedded=times == 1 and case.model.tier == "embedded",
            times=times,
            precision=claimed_precision(case),
            fit=case.fit,
            digest=case.model.digest,
        )
        directions: Mapping[str, Any] = {}
        if times == 1 and any(each.directed for each in self.group.cases):
            directions = references.directions(
                suite, self.request, reference, embedded=case.model.tier == "embedded", fit=case.fit
            )
        tokenizer = Tokenizer(case.model.folder)
        make_inputs: Callable[..., Any] = suite.inputs
        inputs = make_inputs(**case.model.parameters.get("inputs", {}))
        known = Answers(reference.__getitem__)

        def ask(name: str) -> Any:
            question = Ask(
                runner=self._on_demand(self.load),
                inputs=inputs,
                parameters=self.request.parameters,
                settings=case.settings,
                tokenizer=tokenizer,
                reference=known,
                own=observed,
                claim=case.claim,
                variant=self._variant,
            )
            return getattr(suite, name)(question)

        observed = Answers(ask, is_final=lambda error: not isinstance(error, LOST))

        return Bench(
            observed=observed,
            reference=known,
            yardstick=Answers(yardstick.__getitem__),
            inputs=inputs,
            dtype=self.request.dtype,
            precision=judged_precision(case),
            attention=self.request.attention,
            kernels=case.kernels,
            tokenizer=tokenizer,
            parameters=self.request.parameters,
            settings=case.settings,
            layers=checkpoint.layers(case.model.folder) if has_files else None,
            vision=_vision(case),
            claim=case.claim,
            directions=directions,
            variants=case.variants,
        )

    def _variant(self, name: str) -> Runner:
        """The runner of a variant. Raises NotSupported where the profile claims none of this name."""
        variants = self.group.first.variants
        if name not in variants:
            engine = self.group.first.effective_target.engine
            raise NotSupported(f"the profile claims no variant {name!r} of {engine}; {did_you_mean(name, variants)}")
        return self._on_demand(variant_of(self.load, name, variants[name]))

    def _on_demand(self, load: Load) -> Runner:
        return cast("Runner", OnDemand(load.request, lambda: self._loaded(load)))

    def _loaded(self, load: Load) -> Runner:
        """The runner of `load`, within the time of the case, which does not count what loading takes."""
        is_there = self._holder.serves(load)
        runner = self._holder.runner(load)
        if not is_there:
            self._deadline = Deadline.after(self._seconds)
        runner.deadline = self._deadline
        return runner


def variant_of(load: Load, name: str, variation: Variation) -> Load:
    """The same with what makes the variant."""
    options = {**load.request.options, **variation.options}
    return replace(
        load,
        request=replace(load.request, options=options, variant=name),
        environment={**load.environment, **variation.environment},
    )


def _vision(case: Case) -> VisionRequested | None:
    """What the case requests of the vision tower."""
    if case.vision is None:
        return None
    kernels = case.vision.kernels[case.effective_target.dtype]
    return VisionRequested(case.vision.attention, kernels, checkpoint.vision_layers(case.model.folder))
