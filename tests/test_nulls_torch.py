"""The nulls compute the same as the target but for rounding, which differs; and leave the target's own evidence."""

# ruff: noqa: E402  (what follows the check for torch needs it)
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from conformance import criteria
from conformance.calibration.measuring import NotVaried, seeded
from conformance.engines.transformers import TransformersRunner
from conformance.nulls.flash import Kernel, attend, polynomial_exp
from conformance.nulls.library import nulls
from conformance.nulls.runner import NullRunner
from conformance.reference.runner import ReferenceRunner
from conformance.runner import LoadRequest
from suites import embedding as suites_embedding
from suites.inputs import embedding, rerank

pytestmark = pytest.mark.torch

CHECKPOINTS = Path(__file__).resolve().parent.parent / "suites" / "checkpoints"
TEXTS = sorted(embedding.inputs().prompts, key=len)[2:18]
PARAMETERS = {"pooling": "last", "max_tokens": 1280}
KERNELS = [
    Kernel(tile=16),
    Kernel(tile=128),
    Kernel(splits=3),
    Kernel(tile=16, splits=7),
    Kernel(tile=16, order="reversed"),
    Kernel(tile=16, order="pairwise"),
    Kernel(probabilities="float32"),
]


def tensors(dtype: Any = torch.float32, queries: int = 50, keys: int = 50) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 4, queries, 16), (2, 2, keys, 16), (2, 2, keys, 16))
    return tuple((2 * torch.randn(shape, generator=generator)).to(dtype) for shape in shapes)  # type: ignore[return-value]


def exact(query: Any, key: Any, value: Any, mask: Any = None, softcap: float | None = None) -> Any:
    key, value = (each.double().repeat_interleave(2, 1) for each in (key, value))
    scores = query.double() @ key.transpose(2, 3) / 4
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, dim=-1) @ value


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_an_emulated_kernel_is_attention(kernel: Kernel) -> None:
    causal = torch.tril(torch.ones(50, 50, dtype=torch.bool))[None, None]
    for mask, softcap in ((None, None), (causal, None), (causal, 5.0)):
        found = attend(*tensors(), mask, softcap=softcap, kernel=kernel)
        assert torch.allclose(found.double(), exact(*tensors(), mask, softcap), rtol=0, atol=5e-6)


def test_a_mask_that_is_added_does_as_one_that_hides() -> None:
    causal = torch.tril(torch.ones(50, 50, dtype=torch.bool))[None, None]
    added = torch.zeros(causal.shape).masked_fill(~causal, torch.finfo(torch.float32).min)
    for kernel in KERNELS:
        hidden = attend(*tensors(), causal, kernel=kernel)
        assert torch.allclose(attend(*tensors(), added, kernel=kernel), hidden, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", [*KERNELS, Kernel(exponential="polynomial", tile=16)], ids=str)
def test_a_hidden_key_leaves_no_trace_and_a_query_that_sees_none_gets_zeros(kernel: Kernel) -> None:
    query, key, value = tensors(torch.bfloat16, keys=150)
    mask = torch.ones(2, 1, 50, 150, dtype=torch.bool)
    mask[:, :, :, 70:] = False
    mask[0, :, 7] = False
    found = attend(query, key, value, mask, kernel=kernel)
    changed = attend(query, key, torch.where(torch.arange(150)[:, None] < 70, value, 1e30), mask, kernel=kernel)
    assert torch.equal(found, changed)
    assert torch.equal(found[0, :, 7], torch.zeros_like(found[0, :, 7]))
    assert torch.isfinite(found).all()


def test_the_polynomial_is_off_by_nearly_a_ten_thousandth() -> None:
    values = -torch.logspace(-6, 1.93, 20_000)
    off = ((polynomial_exp(values).double() - values.double().exp()) / values.double().exp()).abs().max()
    assert 5e-5 < off < 1e-4
    assert polynomial_exp(torch.tensor([0.0, -90.0, -torch.inf])).tolist() == [1.0, 0.0, 0.0]


def test_rounding_what_may_be_rounded_costs_precision() -> None:
    query, key, value = tensors(torch.bfloat16)
    wide = exact(query, key, value)

    def error(**how: Any) -> float:
        return float((attend(query, key, value, None, kernel=Kernel(**how)).double() - wide).square().mean().sqrt())

    assert error(probabilities="float32") < error() < error(rounded_scores=True)


def request(attention: str, dtype: str, **options: Any) -> LoadRequest:
    folder = str(CHECKPOINTS / "embedding-qwen3")
    return LoadRequest("embedding-qwen3", folder, "embedding.last", "cpu", attention, dtype, PARAMETERS, options)


@pytest.fixture(scope="module")
def reference() -> Any:
    with ReferenceRunner(request("eager", "float64", batch_size=1, widen=True)) as runner:
        return runner.embed(TEXTS)


@pytest.fixture(scope="module")
def plain() -> dict[tuple[str, str], Any]:
    found = {}
    for attention, dtype in (("sdpa", "bfloat16"), ("eager", "bfloat16"), ("sdpa", "float32")):
        with TransformersRunner(request(attention, dtype)) as runner:
            found[attention, dtype] = runner.embed(TEXTS)
    return found


CLAIMS = {("sdpa", "bfloat16"): "fused", ("eager", "bfloat16"): "eager", ("sdpa", "float32"): "ieee"}
YARDSTICK = {"fused": "conformance_ideal_fused", "eager": "eager", "ieee": "eager"}


@pytest.fixture(scope="module")
def yardsticks() -> dict[str, Any]:
    found = {}
    for (_, dtype), claim in CLAIMS.items():
        with ReferenceRunner(request(YARDSTICK[claim], dtype)) as runner:
            found[claim] = runner.embed(TEXTS)
    return found


ALWAYS_DIFFER = ("kernel", "linear", "rotary", "combined")
"""Families that change bits on every machine; of the others that depends on its kernels, and on luck in 16 bit."""


LEGAL = [
    pytest.param(id, target, id=f"{id}-{'/'.join(target)}")
    for id, null in nulls().items()
    for target, claim in CLAIMS.items()
    if null.seed == 0
    and not null.refusal({"rope_parameters": {}}, "embedding.last", target[0], {claim})
    # Eager attention only where it is another code path: these are loaded anew each.
    and (target[0] == "sdpa" or id in ("as-is", "kernel.rounded-scores", "kernel.tile-64", "combined.fast"))
]


@pytest.mark.parametrize(("id", "target"), LEGAL)
def test_every_null_differs_in_rounding_alone(
    id: str, target: tuple[str, str], reference: Any, plain: dict[tuple[str, str], Any], yardsticks: dict[str, Any]
) -> None:
    attention, dtype = target
    claim = CLAIMS[target]
    before = torch.get_num_threads()
    with NullRunner(request(attention, dtype, variation=id)) as runner:
        found = runner.embed(TEXTS)
    assert torch.get_num_threads() == before
    ours = plain[target]
    assert found.prompt_token_ids == ours.prompt_token_ids
    effective = found.effective
    assert set(effective.kernels) == set(ours.effective.kernels) and effective.attention == attention
    assert sum(effective.kernels.values()) == effective.layers * effective.forwards
    if nulls()[id].family in ALWAYS_DIFFER or (id.startswith("norm.") and dtype == "float32"):
        assert not np.array_equal(found.values, ours.values)
    judgement = criteria.vector.agrees(
        x=found.values,
        r=reference.values,
        e=yardsticks[claim].values,
        dtype=dtype,
        precision=claim,
        prompt_lengths=[len(ids) for ids in found.prompt_token_ids],
    )
    assert judgement.verdict == "PASS", judgement.message


def test_what_a_null_changed_is_taken_back(plain: dict[tuple[str, str], Any]) -> None:
    for id in ("combined.device", "kernel.tile-16"):
        with NullRunner(request("sdpa", "bfloat16", variation=id)) as runner:
            runner.embed(TEXTS[:2])
    with TransformersRunner(request("sdpa", "bfloat16")) as runner:
        assert np.array_equal(runner.embed(TEXTS).values, plain["sdpa", "bfloat16"].values)


@pytest.mark.parametrize("id", ["padding.extra", "kernel.splits-3", "order.arrival", "linear.splits-2", "norm.wide"])
def test_generated_and_forced_text_stays_the_same(id: str) -> None:
    folder = str(CHECKPOINTS / "generation-qwen3")
    base = LoadRequest("generation-qwen3", folder, "generation", "cpu", "sdpa", "float32", {}, {"variation": "as-is"})
    prompts = [[5, 9, 11, 5, 9, 11, 5], [7, 8, 9, 7], list(range(20, 60)) * 2]
    answers = []
    for variation in ("as-is", id):
        changed = LoadRequest(**{**vars(base), "options": {"variation": variation}})
        with NullRunner(changed) as runner:
            free = runner.generate(prompts, max_tokens=4)
            candidates = np.tile(np.arange(30), (3, 4, 1))
            forced = [
                runner.score_tokens(prompts, free.token_ids, candidates, via=via) for via in ("prefill", "decode")
            ]
        answers.append((free.token_ids, *(each.values for each in forced)))
    assert answers[0][0] == answers[1][0]
    for ours, theirs in zip(answers[0][1:], answers[1][1:], strict=True):
        assert np.allclose(ours, theirs, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("id", ["norm.strided", "linear.splits-7", "kernel.pairwise"])
def test_encoders_are_varied_too(id: str) -> None:
    folder = str(CHECKPOINTS / "rerank-xlmr")
    pairs = rerank.inputs().pairs[:12]
    values = []
    for variation in ("as-is", id):
        options = {"variation": variation}
        ask = LoadRequest("rerank-xlmr", folder, "rerank.cross_encoder", "cpu", "sdpa", "float32", {}, options)
        with NullRunner(ask) as runner:
            values.append(runner.score_pairs(pairs).values)
    assert not np.array_equal(*values) and np.allclose(*values, rtol=0, atol=1e-4)


def test_other_seeds_are_other_prompts_of_the_same_suite() -> None:
    other = seeded(suites_embedding.LastTokenEmbedding, 3)
    assert (
        issubclass(other, suites_embedding.LastTokenEmbedding)
        and other.inputs() == embedding.inputs(3) != embedding.inputs()
    )
    assert seeded(suites_embedding.LastTokenEmbedding, 0) is suites_embedding.LastTokenEmbedding
    assert other.__qualname__ != suites_embedding.LastTokenEmbedding.__qualname__

    class Fixed(suites_embedding.LastTokenEmbedding):
        inputs = staticmethod(lambda: embedding.inputs())

    with pytest.raises(NotVaried, match="take no seed"):
        seeded(Fixed, 1)
