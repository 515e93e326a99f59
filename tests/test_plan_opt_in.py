"""Attention backends that run only where they are asked for, and batch forms that are kept to."""

from __future__ import annotations

import world

from conformance.engines.batching import batches
from conformance.execution.group import groups

OPT_IN = world.TOP_LINES.replace(
    '"toy::quick*"] }\n', '"toy::quick*"] }\nopt_in = true\nbatch = ["unpadded", "decode"]\n'
)
RUNS = '\n[runs.all]\nsuites = ["*"]\ntier = "embedded"\nbudget_minutes = 5\nopt_in = true\n'


def attentions(**selection: object) -> set[str]:
    plan = world.plan(world.profile(OPT_IN, add=RUNS), **selection)
    return {case.target.attention for case in plan.cases}


def test_an_opt_in_backend_runs_only_where_it_is_named_or_a_run_takes_all() -> None:
    assert attentions() == {"plain"}
    assert attentions(attentions=("quick",)) == {"quick"}
    assert attentions(run="all") == {"plain", "quick"}


def test_the_runner_is_told_the_only_batch_form_that_a_backend_takes() -> None:
    plan = world.plan(world.profile(OPT_IN, add=RUNS), run="all")
    forms = {group.first.target.attention: group.request("cpu").options.get("batch") for group in groups(plan)}
    assert forms == {"plain": None, "quick": "unpadded"}


def test_batches_hold_one_length_or_share_a_short_prompt_as_the_form_demands() -> None:
    lengths = [8, 8, 1, 7, 8]
    assert list(batches(lengths, 2, form="unpadded")) == [[0, 1], [4], [3], [2]]
    assert list(batches(lengths, 8)) == [[0, 1, 4, 3], [2]]
    assert list(batches(lengths, 8, form="padded")) == [[0, 1, 4, 3, 2]]
    assert list(batches(lengths, 8, extra=4, form="unpadded")) == [[0, 1, 4], [3], [2]]
