"""Shapes, memory and time of full-size models, estimated from numbers alone; what cannot fit is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import world
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.catalogue import Catalogue, Model, load_catalogue
from conformance.engines import memory
from conformance.engines.memory import EAGER, FUSED, IDEAL, Way
from conformance.engines.shape import parameters, read_shape, shape_of
from conformance.inventory import load_suites, of_roles
from conformance.models.fit import Fit, fit
from conformance.registry import discover
from conformance.verdict import Verdict
from conformance.workload import Workload

SUITES = of_roles(load_suites(discover()))
FULL = [model for model in load_catalogue(discover().catalogue_paths()).models if model.tier == "full"]
NAMES = [model.name for model in FULL]
WORK = Workload(prompts=34, tokens=9102, longest=1280)
LARGE = next(model for model in FULL if model.name == "Qwen3-Embedding-0.6B")


def shape(name: str = LARGE.name) -> Any:
    model = next(model for model in FULL if model.name == name)
    assert model.configuration is not None
    return read_shape(model.configuration)


def fitted(model: Model = LARGE, *, device: str = "cuda", dtype: str = "bfloat16", **more: Any) -> Fit:
    facts = {"device": {"type": device, "memory_gib": more.pop("memory", 80)}, "host": more.pop("host", {})}
    precision = "ieee" if dtype == "float32" else "fused"
    found = fit(model, model.roles[0], WORK, dtype=dtype, precision=precision, device=device, facts=facts, **more)
    assert found is not None
    return found


@pytest.mark.parametrize("model", FULL, ids=NAMES)
def test_every_full_size_model_can_be_estimated(model: Model) -> None:
    assert shape(model.name) is not None
    assert model.head_size == shape(model.name).head_size
    assert not model.answers and model.hub and not model.trust_remote_code


@pytest.mark.torch
@pytest.mark.parametrize("model", FULL, ids=NAMES)
def test_parameters_are_counted_as_transformers_makes_them(model: Model) -> None:
    import torch
    from transformers import AutoConfig

    from conformance.engines.loaded_model import auto_class

    config = AutoConfig.from_pretrained(model.configuration)
    with torch.device("meta"):
        made = auto_class(model.roles[0]).from_config(config)
    made.tie_weights()
    assert parameters(shape(model.name), model.roles[0]) == sum(weight.numel() for weight in made.parameters())


INFINITE = json.dumps({**json.loads(LARGE.configuration.read_text()), "hidden_size": float("inf")})  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", "[" * 100_000, INFINITE, '{"model_type": "qwen3"}', '{"model_type": "mamba"}']
)
def test_a_config_that_says_no_sizes_has_no_shape(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert read_shape(tmp_path / "config.json") is None
    assert read_shape(tmp_path / "nowhere.json") is None


@pytest.mark.parametrize("role", sorted(role for role, suite in SUITES.items() if "attention" not in suite.needs))
def test_the_declared_workload_is_that_of_the_suites_inputs(role: str) -> None:
    from replay import embedded, recorded

    suite = SUITES[role]
    assert suite.workload is not None, f"{suite.path} declares no workload"
    name = next(name for name, (model, _) in embedded().items() if role in model.roles)
    reference, _ = recorded(name, "bfloat16", "eager")
    lengths = max(([len(ids) for ids in each.prompt_token_ids] for each in reference.values()), key=sum)
    work = suite.workload
    assert (work.prompts, work.tokens, work.longest) == (len(lengths), sum(lengths), max(lengths))
    grids = getattr(reference.get("greedy"), "grids", ())
    patches = [math.prod(grid) for pictures in grids for grid in pictures]
    assert (work.patches, work.largest_picture) == (sum(patches), max(patches, default=0))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 1280), min_size=1, max_size=60), st.sampled_from([EAGER, FUSED, IDEAL]))
def test_the_plans_estimate_is_never_below_that_of_real_batches(lengths: list[int], kind: str) -> None:
    work = Workload(len(lengths), sum(lengths), max(lengths))
    way = Way("bfloat16", kind, on_host=True)
    planned = memory.need(shape(), "embedding.last", way, memory.planned_batches(shape(), work, way, None))
    real = memory.need(shape(), "embedding.last", way, memory.batches_of(lengths, way))
    # Lengths lie between two that are tried; the reserve of a tenth, which is added later, is for that.
    assert planned.total >= 0.91 * real.total


def test_more_of_anything_needs_more() -> None:
    way = Way("bfloat16", FUSED, on_host=False)
    small, large = shape("Qwen3-0.6B"), shape("Qwen2.5-1.5B-Instruct")
    one, two = memory.Batch(4, 100, 128), memory.Batch(8, 200, 128)
    base = memory.need(small, "generation", way, [one])
    assert base.cache > 0 and base.logits > 0
    assert memory.need(small, "generation", way, [one, two]).total > base.total
    assert memory.need(large, "generation", way, [one]).weights > base.weights
    assert memory.need(small, "generation", replace(way, dtype="float32"), [one]).weights == 2 * base.weights
    assert memory.need(small, "generation", replace(way, attention=EAGER), [two]).activations > 0
    vision = shape("Qwen2-VL-2B-Instruct")
    seen = replace(two, patches=50_000, largest_picture=4_000)
    assert memory.need(vision, "multimodal", way, [seen]).total > memory.need(vision, "multimodal", way, [two]).total


def test_a_device_that_is_too_small_is_refused_with_the_figures() -> None:
    assert fitted(memory=16).refusal == ""
    refusal = fitted(memory=2).refusal
    assert refusal.startswith("Qwen3-Embedding-0.6B in bfloat16 needs about 2.")
    assert "weights 1.1" in refusal and "but the device has 2 GiB" in refusal


def test_another_devices_memory_says_nothing() -> None:
    facts = {"device": {"type": "xpu", "memory_gib": 1}}
    found = fit(LARGE, "embedding.last", WORK, dtype="bfloat16", precision="fused", device="cuda", facts=facts)
    assert found is not None and found.refusal == ""


def test_a_host_too_small_for_fp64_has_a_reference_in_float32() -> None:
    roomy, narrow, tiny = (fitted(host={"memory_gib": gib, "cores": 4}) for gib in (64, 6, 2))
    assert (roomy.reference, roomy.refusal) == ("float64", "")
    assert (narrow.reference, narrow.refusal) == ("float32", "")
    assert "GiB of host memory for its reference and yardstick, but this host has 2.0 GiB" in tiny.refusal
    assert fitted().reference == "float64", "what is not known refuses nothing"


def test_float32_is_refused_where_only_a_float32_reference_fits() -> None:
    found = fitted(dtype="float32", host={"memory_gib": 6.0})
    assert "needs a reference in fp64" in found.refusal and "--dtype bfloat16" in found.refusal


def test_time_follows_the_cores_and_a_budget_refuses() -> None:
    one, many = (fitted(host={"memory_gib": 64, "cores": cores}) for cores in (1, 64))
    assert one.reference_s > 50 * many.reference_s and one.engine_s is None
    assert fitted(device="cpu", host={"memory_gib": 64, "cores": 4}).engine_s is not None
    refusal = fitted(host={"memory_gib": 64, "cores": 1}, budget_minutes=10).refusal
    assert "min on this host, reference included, and the run's budget is 10 min" in refusal
    assert fitted(host={"memory_gib": 64, "cores": 64}, budget_minutes=10).refusal == ""


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(LARGE.configuration.read_text())}))  # type: ignore[union-attr]
    big = Model(
        "big-words", ("words",), "full", tmp_path, "Qwen3ForCausalLM", hub="a/b", revision="f" * 40, digest="d" * 64
    )
    return Catalogue((*world.CATALOGUE.models[:2], big))


def cases(catalogue: Catalogue, facts: dict[str, Any] | None = None, **selection: Any) -> Any:
    suites = tuple(replace(suite, workload=WORK) for suite in world.SUITES)
    from conformance.plan import make_plan
    from conformance.selection import Selection

    found = make_plan(suites, world.profile(add=CERTIFY), catalogue, facts or {}, Selection(**selection))
    return [case for case in found.cases if case.model.name == "big-words"]


CERTIFY = """
[runs.certification]
suites = ["*"]
tier = "full"
budget_minutes = 240

[runs.quick]
suites = ["*"]
tier = "full"
budget_minutes = 1
"""


def test_the_full_tier_is_planned_when_it_is_asked_for(catalogue: Catalogue) -> None:
    assert cases(catalogue) == []
    assert {case.verdict for case in cases(catalogue, tier="full")} == {None}
    assert cases(catalogue, tier="embedded", run="certification") == []
    assert cases(catalogue, run="certification") != []
    from conformance.names import UsageError

    with pytest.raises(UsageError, match="unknown tier 'ful'; did you mean 'full'"):
        cases(catalogue, tier="ful")


def test_ids_do_not_depend_on_what_is_there(catalogue: Catalogue) -> None:
    absent = Catalogue(tuple(replace(model, absent="gone") for model in catalogue.models))
    there, gone = cases(catalogue, tier="full"), cases(absent, tier="full")
    assert [case.id for case in there] == [case.id for case in gone]
    assert {(case.verdict, case.reason) for case in gone} == {(Verdict.ENVIRONMENT, "gone")}


def test_a_machine_that_is_too_small_says_so_for_the_model(catalogue: Catalogue) -> None:
    found = cases(catalogue, {"device": {"type": "toy", "memory_gib": 1.5}}, tier="full")
    assert {case.verdict for case in found} == {Verdict.ENVIRONMENT}
    assert all("big-words in" in case.reason and "but the device has 1.5 GiB" in case.reason for case in found)


def test_a_model_that_takes_longer_than_the_runs_budget_is_refused(catalogue: Catalogue) -> None:
    facts = {"host": {"memory_gib": 64, "cores": 1}}
    assert {case.verdict for case in cases(catalogue, facts, run="quick")} == {Verdict.ENVIRONMENT}
    assert {case.verdict for case in cases(catalogue, facts, run="quick", budget_minutes=600)} == {None}
    assert {case.verdict for case in cases(catalogue, facts, tier="full", budget_minutes=1)} == {Verdict.ENVIRONMENT}
    assert {case.verdict for case in cases(catalogue, facts, tier="full")} == {None}


def test_certification_takes_no_model_whose_commit_nobody_knows(catalogue: Catalogue) -> None:
    unpinned = Catalogue(tuple(replace(model, revision="") for model in catalogue.models))
    assert {case.verdict for case in cases(catalogue, run="certification")} == {None}
    found = cases(unpinned, run="certification")
    assert {case.verdict for case in found} == {Verdict.ENVIRONMENT}
    assert all("models fetch big-words` records the commit, and --write-pins" in case.reason for case in found)
    assert {case.verdict for case in cases(unpinned, tier="full")} == {None}


def test_certification_takes_no_model_that_was_never_hashed_and_no_folder_of_the_users(catalogue: Catalogue) -> None:
    for change, says in (({"digest": ""}, "nothing was recorded"), ({"tier": "local"}, "a folder of yours")):
        changed = Catalogue(tuple(replace(model, **change) for model in catalogue.models))
        found = cases(changed, run="certification", models=(("words", "big-words"),))
        assert {case.verdict for case in found} == {Verdict.ENVIRONMENT}
        assert all(says in case.reason for case in found)
        assert {case.verdict for case in cases(changed, models=(("words", "big-words"),))} == {None}


def test_an_embedded_model_is_not_estimated() -> None:
    model = world.CATALOGUE.models[0]
    assert fit(model, "words", WORK, dtype="bfloat16", precision="fused", device="toy", facts={}) is None


def test_a_shape_needs_every_size() -> None:
    with pytest.raises(KeyError):
        shape_of({"model_type": "qwen3", "num_attention_heads": 2, "hidden_size": 4})
