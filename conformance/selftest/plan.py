"""Which trials selftest makes: the clean ones, each fault at home or wherever it applies, and the nulls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance import checkpoint
from conformance.execution import injection as injecting
from conformance.execution.group import Group, groups
from conformance.execution.injection import FAULT, VARIATION, Injector, with_options
from conformance.faults.fault import Fault, Injection
from conformance.names import UsageError
from conformance.nulls.null import Null, no_change
from conformance.plan import Plan
from conformance.selftest.judging import without_measuring
from conformance.selftest.trial import Finding, Result, Trial
from conformance.selftest.wanted import Wanted, check_names, wanted_injections

TIERS = ("float32", "float16", "bfloat16")
"""Where a fault's own dtype is not claimed, the first of these that is."""

STRUCTURAL_TIER = "bfloat16"


@dataclass(frozen=True)
class Trials:
    """The clean trials and those that are held against them; `notes` say what could not be planned."""

    clean: tuple[Trial, ...]
    changed: tuple[Trial, ...]
    inapplicable: tuple[Finding, ...] = ()  # known without a run
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many findings there will be."""
        return len(self.clean) + len(self.changed) + len(self.inapplicable)


def make_trials(
    plan: Plan,
    engines: Mapping[str, str],
    faults: Mapping[str, Fault],
    nulls: Mapping[str, Null],
    wanted: Wanted,
) -> Trials:
    """The trials on the plan's groups. Raises UsageError for injections and nulls that there are not."""
    check_names(wanted, faults, nulls)
    every, injectors = groups(plan), injecting.INJECTORS
    open_to = [group for group in every if engines[group.first.effective_target.engine] in injectors]
    notes = [*_closed(every, open_to), *([] if every else _nothing_to_run(plan))]
    chosen = [
        group for members in _places(open_to).values() for group in (members if wanted.whole else [_sharpest(members)])
    ]
    named = bool(wanted.injections or wanted.nulls)
    injections = wanted_injections(wanted.injections, faults)
    if not named:
        injections = _defaults(faults.values(), wanted.whole)
    changed: list[Trial] = []
    inapplicable: list[Finding] = []
    for injection in injections:
        fault = faults[injection.fault]
        homes = [group for group in chosen if wanted.whole or _is_home(fault, group, chosen)]
        if open_to and not homes and (named or not wanted.suites or fault.suite in wanted.suites):
            notes.append(
                f"{injection} is not tried: it is at home in {fault.suite} on {fault.model}, of which nothing is to be "
                "run here; --full tries it everywhere"
            )
        for group in homes:
            trial = _injected(group, injection, fault, injectors[engines[group.first.effective_target.engine]])
            reason = why_not(fault, group)
            if reason is None:
                changed.append(trial)
            elif not wanted.whole:  # there, that a fault has no place in most models goes without saying
                inapplicable.append(without_measuring(trial, Result.NOT_APPLICABLE, reason))
    for index, group in enumerate(chosen):
        injector = injectors[engines[group.first.effective_target.engine]]
        fit = [null for null in nulls.values() if _refusal(null, group) is None]
        if not named:
            changed += [_varied(group, null, injector) for null in (fit if wanted.whole else _few(fit, index))]
        for null in (nulls[name] for name in wanted.nulls):
            trial, reason = _varied(group, null, injector), _refusal(null, group)
            if reason is None:
                changed.append(trial)
            else:
                inapplicable.append(without_measuring(trial, Result.NOT_APPLICABLE, reason))
    used = {trial.place for trial in changed}
    clean = tuple(
        Trial("clean", "", "clean", group, engines[group.first.effective_target.engine])
        for group in chosen
        if not named or _place(group) in used
    )
    return Trials(clean, tuple(changed), tuple(inapplicable), tuple(notes))


def _defaults(faults: Iterable[Fault], whole: bool) -> list[Injection]:
    return [Injection(fault.id, scope) for fault in faults for scope in (fault.scopes if whole else fault.scopes[:1])]


def _is_home(fault: Fault, group: Group, every: Sequence[Group]) -> bool:
    """Whether a fault must be found in this group: its suite and model, in its tier, and in 16 bit if structural."""
    case = group.first
    if (case.suite, case.model.name) != (fault.suite, fault.model):
        return False
    dtypes = {
        other.first.effective_target.dtype
        for other in every
        if (other.first.suite, other.first.model.name) == (fault.suite, fault.model)
    }
    own = next((dtype for dtype in (fault.dtype, *TIERS) if dtype in dtypes), None)
    tiers = {own} | ({STRUCTURAL_TIER} if fault.structural else set())
    return case.effective_target.dtype in tiers


def _injected(group: Group, injection: Injection, fault: Fault, injector: Injector) -> Trial:
    changed = with_options(group, {FAULT: str(injection)})
    return Trial("fault", str(injection), fault.family, changed, injector.faulty, fault.structural)


def _varied(group: Group, null: Null, injector: Injector) -> Trial:
    return Trial("null", null.id, null.family, with_options(group, {VARIATION: null.id}), injector.varied)


def _few(nulls: Sequence[Null], index: int) -> list[Null]:
    """The null of a short selftest in the group of this index: another one than in the next group."""
    quick = [null for null in nulls if null.quick and (null.vary is not no_change or null.options)]
    return [quick[index % len(quick)]] if quick else []


def _refusal(null: Null, group: Group) -> str | None:
    if null.seed:
        return "it asks other prompts, whose references calibrate computes"
    return injecting.why_no_null(null, group.first)


def why_not(fault: Fault, group: Group) -> str | None:
    """Why a fault does not apply to a group; None where it does. UsageError where it cannot even say."""
    if reason := injecting.out_of_place(fault, group):
        return reason
    try:
        return fault.applies(checkpoint.config(group.first.model.folder), group.first.role)
    except Exception as error:  # a vendor's own fault
        where = f"{group.first.model.name} as {group.first.role}"
        raise UsageError(
            f"fault {fault.id!r}: its `applies` raised {type(error).__name__}: {error} ({where})"
        ) from error


def _places(every: Iterable[Group]) -> dict[tuple[str, str, str], list[Group]]:
    found: dict[tuple[str, str, str], list[Group]] = {}
    for group in every:
        case = group.first
        found.setdefault((case.suite_path, case.model.name, case.effective_target.dtype), []).append(group)
    return found


def _sharpest(members: Sequence[Group]) -> Group:
    """The attention backend to try on: one that claims eager rounding may be the yardstick, so another if there is."""
    return min(members, key=lambda group: "eager" in group.first.claim.precision.values())


def _place(group: Group) -> tuple[str, str, str]:
    return group.first.suite_path, group.first.effective_target.id, group.first.model.name


def _nothing_to_run(plan: Plan) -> list[str]:
    reasons = Counter(case.reason for case in plan.cases)
    return [f"no case can be run here: {reason}" for reason, _ in reasons.most_common(1)]


def _closed(every: Sequence[Group], open_to: Sequence[Group]) -> list[str]:
    """A sentence on the engines that nothing can be injected into."""
    engines = sorted({group.first.effective_target.engine for group in every if group not in open_to})
    return [f"nothing can be injected into the engine {name}, so it has no trials" for name in engines]
