"""The trials that selftest plans on the real cpu profile: every fault at home, structural ones in bfloat16 too."""

from __future__ import annotations

import argparse
import dataclasses
from functools import cache
from typing import Any

import pytest

from conformance.cli import selftest
from conformance.cli.arguments import read_inputs
from conformance.cli.parser import Parser
from conformance.execution.group import Group, groups
from conformance.execution.planting import candidates, places
from conformance.faults.library import faults
from conformance.names import UsageError
from conformance.nulls.library import nulls
from conformance.plan import Plan
from conformance.selftest.plan import Trials, make_trials
from conformance.selftest.wanted import Wanted
from conformance.verdict import Verdict

SHORT = Wanted()
FACTS: dict[str, Any] = {"engines": {"transformers": "any"}, "device": {"type": "cpu", "available": True}}


@cache
def planned(*arguments: str) -> tuple[Plan, dict[str, str]]:
    parser = Parser()
    selftest.add_arguments(parser)
    options: argparse.Namespace = parser.parse_args(["--backend", "cpu", *arguments])
    inputs = read_inputs(options)
    return inputs.plan(FACTS), dict(inputs.engines)


@cache
def trials(wanted: Wanted = SHORT, *arguments: str) -> Trials:
    plan, engines = planned(*arguments)
    return make_trials(plan, engines, faults(), nulls(), wanted)


def test_every_fault_is_tried_at_home_and_where_it_is_structural_in_bfloat16_too() -> None:
    tried = {(one.name, one.suite, one.dtype) for one in trials().changed if one.kind == "fault"}
    assert not trials().inapplicable, [(one.name, one.reason) for one in trials().inapplicable]
    for fault in faults().values():
        wanted = {fault.dtype} | ({"bfloat16"} if fault.structural else set())
        assert {dtype for name, suite, dtype in tried if name == fault.id} == wanted, fault.id
        assert {suite for name, suite, dtype in tried if name == fault.id} == {fault.suite}


def test_no_fault_at_home_is_tried_on_a_backend_that_claims_eager_rounding_if_there_is_another() -> None:
    by_suite: dict[tuple[str, str], set[str]] = {}
    for one in trials().changed:
        case = one.group.first
        by_suite.setdefault((one.suite, case.model.name), set()).add(case.effective_target.attention)
    assert {attention for found in by_suite.values() for attention in found} <= {"sdpa", "eager"}
    assert by_suite["embedding", "embedding-qwen3"] == {"sdpa"}


def test_every_trial_has_the_clean_one_that_it_is_held_against() -> None:
    for found in (trials(), trials(Wanted(injections=("scale.missing",)))):
        clean = [one.place for one in found.clean]
        assert len(clean) == len(set(clean))
        assert {one.place for one in found.changed} <= set(clean)
    assert {one.place for one in trials(Wanted(injections=("scale.missing",))).clean} == {
        one.place for one in trials(Wanted(injections=("scale.missing",))).changed
    }


def test_a_short_selftest_has_a_null_in_every_suite_and_tier_and_all_quick_ones_somewhere() -> None:
    short = [one for one in trials().changed if one.kind == "null"]
    assert {one.place for one in short} == {one.place for one in trials().clean}
    assert {one.name for one in short} == {null.id for null in nulls().values() if null.quick} - {"as-is"}
    assert not any(nulls()[one.name].seed for one in trials(Wanted(whole=True)).changed if one.kind == "null")


def test_full_tries_everything_everywhere_in_every_scope() -> None:
    whole = trials(Wanted(whole=True))
    names = {one.name for one in whole.changed if one.kind == "fault"}
    assert {"scale.missing", "scale.missing@middle"} <= names
    places_of = {(one.suite, one.dtype) for one in whole.changed if one.name == "scale.missing"}
    assert len(places_of) > 8
    assert len(whole.changed) > 5 * len(trials().changed)


def test_a_selection_leaves_out_what_is_not_in_it_without_a_word() -> None:
    assert {one.group.first.effective_target.attention for one in trials(SHORT, "--dtype", "float32").clean} == {
        "sdpa",
        "eager",  # of gemma2, which transformers runs on nothing else
    }
    few = trials(Wanted(suites=("classification",)), "--suite", "classification", "--dtype", "float32")
    assert {(one.suite, one.dtype) for one in few.changed} == {("classification", "float32")} and not few.notes
    with pytest.raises(UsageError, match="did you mean 'classification'"):
        planned("--suite", "clasification")


def test_a_fault_whose_dtype_nobody_claims_is_tried_in_the_next_tier() -> None:
    found = trials(Wanted(injections=("scale.one-percent",)), "--dtype", "float16")
    assert [(one.dtype, one.suite) for one in found.changed] == [("float16", "embedding")]


def test_a_named_fault_without_a_home_here_is_said() -> None:
    found = trials(Wanted(injections=("scale.missing",), suites=("reward",)), "--suite", "reward")
    assert found.changed == () and "at home in embedding on embedding-qwen3" in found.notes[0]
    everywhere = Wanted(whole=True, injections=("scale.missing",), suites=("reward",))
    assert {one.suite for one in trials(everywhere, "--suite", "reward").changed} == {"reward"}


def test_a_plan_of_which_nothing_can_be_run_says_why() -> None:
    plan, engines = planned()
    gone = tuple(dataclasses.replace(case, verdict=Verdict.ENVIRONMENT, reason="no device") for case in plan.cases)
    found = make_trials(dataclasses.replace(plan, cases=gone), engines, faults(), nulls(), SHORT)
    assert found.count == 0 and found.notes == ("no case can be run here: no device",)


def test_every_suite_and_target_has_a_fault_that_can_be_planted() -> None:
    plan, _ = planned()
    every = groups(plan)
    chosen = places(every)
    assert {(group.first.suite_path, group.first.effective_target.id) for group in every} == {
        (group.first.suite_path, group.first.effective_target.id) for group in chosen
    }
    for group in chosen:
        assert candidates(faults().values(), group), group.first.id


def test_an_engine_held_against_itself_has_the_faults_of_its_variants_alone() -> None:
    plan, _ = planned()
    for group in groups(plan):
        fit = {one.id for one in candidates(faults().values(), group)}
        if group.first.suite == "invariance":
            assert fit == {"chunk.cache-unseen"}
            others = [case for case in group.cases if case.requirement_id == "INV-010"]  # which asks of no variant
            assert not others or candidates(faults().values(), Group(tuple(others))) == []
        else:
            assert not any(faults()[each].variant for each in fit)
    whole = trials(Wanted(whole=True))
    everywhere = {one.suite for one in whole.changed if one.name.startswith("chunk.seam-lost")}
    assert everywhere == {"invariance"}
