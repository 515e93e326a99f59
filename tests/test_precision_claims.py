"""A device is judged by the precision that is claimed of it: what it claims is right, what it does not is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import world

from conformance.execution.group import claimed_precision, groups, judged_precision
from conformance.profile import Products, ProfileError, load_profile
from conformance.reference import compute

REDUCED = '\n[precision]\nmatmul = { float32 = "tf32" }\nconvolution = { float32 = "ieee" }\n'


def cases(**selection: Any) -> list[Any]:
    return list(world.plan(world.profile(add=REDUCED), **selection).cases)


def test_products_are_ieee_unless_the_profile_says_otherwise() -> None:
    assert world.profile().products == Products("ieee", "ieee")
    assert world.profile(add=REDUCED).products == Products("tf32", "ieee")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[precision]\nmatmul = { float32 = "tf23" }', "tf23"),
        ('[precision]\nmatmul = { float32 = "fused" }', "ieee"),
        ('[precision]\nmatmul = { bfloat16 = "tf32" }', "bfloat16"),
        ('[precision]\nmatmull = { float32 = "tf32" }', "matmul"),
        ('[precision]\nconvolution = "tf32"', "convolution"),
        ("[precision]\nconvolution = {}", "float32"),
    ],
)
def test_an_unknown_claim_of_products_is_refused(text: str, message: str) -> None:
    with pytest.raises(ProfileError, match="precision") as caught:
        world.profile(add="\n" + text)
    assert message in str(caught.value)


def test_the_shipped_profiles_claim_ieee_products() -> None:
    paths = sorted(Path(__file__).parent.parent.glob("backends/*/profile.toml"))
    assert len(paths) >= 3
    for path in paths:
        assert load_profile(path).products == Products(), path


def test_a_reduced_product_names_another_yardstick_in_float32_alone() -> None:
    plain, narrow = cases(dtypes=("float32",))[0], cases(dtypes=("bfloat16",), attentions=("plain",))[0]
    assert (claimed_precision(plain), judged_precision(plain)) == ("ieee-reduced-matmul", "tf32")
    assert (claimed_precision(narrow), judged_precision(narrow)) == ("eager", "eager")


def test_products_do_not_count_where_only_attention_kernels_are_called() -> None:
    kernel = replace(cases(dtypes=("float32",))[0], needs=("attention",))
    assert (claimed_precision(kernel), judged_precision(kernel)) == ("ieee", "ieee")


def test_convolutions_count_only_where_a_model_has_some() -> None:
    case = cases(dtypes=("float32",))[0]
    blurred = replace(case, products=Products(convolution="tf32"))
    assert (claimed_precision(blurred), judged_precision(blurred)) == ("ieee", "ieee")
    seeing = replace(blurred, vision=world.profile().claim("transformers", "plain"))
    assert (claimed_precision(seeing), judged_precision(seeing)) == ("ieee-reduced-convolution", "tf32")


def test_a_vision_tower_in_tf32_is_judged_as_tf32() -> None:
    case = replace(cases(dtypes=("float32",))[0], products=Products())
    claim = world.profile().claim("transformers", "plain")
    assert claim is not None
    seeing = replace(case, vision=replace(claim, precision={"float32": "tf32"}))
    assert (claimed_precision(seeing), judged_precision(seeing)) == ("ieee-vision-tf32", "tf32")


def test_a_stored_yardstick_is_named_after_all_that_is_claimed_and_made_so() -> None:
    name = compute.claimed("ieee", "tf32", ("matmul", "convolution"))
    assert compute.part_name("float32", name) == "float32-ieee-vision-tf32-reduced-matmul-reduced-convolution"
    for variant in compute.variants("float32", name):
        assert (variant.attention, variant.vision_attention) == ("eager", "conformance_tf32")
        assert variant.options["tf32"] == ["matmul", "convolution"]
    assert compute.claimed("eager", "eager") == "eager"
    for dtype, precision in compute.YARDSTICKS:
        assert compute.variants(dtype, precision) and "tf32" not in compute.variants(dtype, precision)[0].options
    with pytest.raises(KeyError):
        compute.variants("bfloat16", "tf32")


def test_the_runner_is_told_what_is_claimed() -> None:
    request = groups(world.plan(world.profile(add=REDUCED)))[0].request("cpu")
    assert (request.matmul, request.convolution) == ("tf32", "ieee")


@pytest.mark.torch
def test_switches_are_set_as_claimed_and_told() -> None:
    from conformance.engines import device

    try:
        facts = device.facts("cpu", "tf32", "ieee")
        assert facts["precision_claims"] == {"matmul": "tf32", "convolution": "ieee"}
        assert facts["precision_switches"]["float32_matmul_precision"] == "high"
        assert facts["precision_switches"]["cudnn.allow_tf32"] is False
        assert device.facts("cpu", "ieee", "tf32")["precision_switches"]["cudnn.allow_tf32"] is True
    finally:
        device.set_precision_switches()
    assert device.precision_switches()["float32_matmul_precision"] == "highest"
    assert device.precision_switches()["cudnn.allow_tf32"] is False


@pytest.mark.torch
def test_rounding_to_tf32_keeps_ten_bits_and_rounds_to_nearest() -> None:
    import torch

    from conformance.reference.reduced import round_to_tf32

    given = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -(1 + 2**-11), 0.0, 65504.0, float("inf")])
    right = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -(1 + 2**-10), 0.0, 65504.0, float("inf")])
    assert torch.equal(round_to_tf32(given), right)
    drawn = torch.randn(1000)
    assert ((round_to_tf32(drawn) - drawn).abs() <= drawn.abs() * 2**-11).all()


@pytest.mark.torch
def test_a_suite_is_judged_by_what_is_claimed_of_its_products_and_attention() -> None:
    """Emulated engines on one model: TF32 passes where it is claimed and nowhere else, and bfloat16 is no TF32."""
    from replay import recorded
    from test_reference import _observe, _subject

    from conformance.criteria.vector import agrees
    from conformance.reference import compute
    from conformance.reference.runner import ReferenceRunner
    from conformance.verdict import Verdict

    name = "embedding-xlmr"
    reference, ieee = recorded(name, "float32", "ieee")
    tf32 = compute.compute_yardstick(_subject(name), reference, "float32", "tf32-reduced-matmul", ReferenceRunner)
    ordered: dict[str, Any] = {"attention": "conformance_tf32", "options": {"batch_size": 4, "tf32": ["matmul"]}}
    engine = _observe(name, "vectors", dtype="float32", **ordered)
    rough = _observe(name, "vectors", dtype="bfloat16", options={"batch_size": 32})
    exact = _observe(name, "vectors", dtype="float32", options={"batch_size": 32})

    def verdict(x: Any, yardstick: Any, precision: str) -> Verdict:
        return agrees(
            x=x.values,
            r=reference["vectors"].values,
            e=yardstick["vectors"].values,
            dtype="float32",
            precision=precision,
            prompt_lengths=[len(ids) for ids in reference["vectors"].prompt_token_ids],
        ).verdict

    assert verdict(engine, tf32, "tf32") is Verdict.PASS
    assert verdict(engine, ieee, "ieee") is Verdict.FAIL
    assert verdict(exact, tf32, "tf32") is Verdict.PASS
    assert verdict(rough, tf32, "tf32") is Verdict.FAIL


@pytest.mark.torch
def test_convolutions_are_reduced_where_that_is_claimed() -> None:
    from replay import recorded
    from test_reference import _observe

    from conformance.reference.compute import values_of

    name = "multimodal-qwen2vl"
    reference, yardstick = recorded(name, "float32", "ieee")
    r, e = (values_of(part["features"]) for part in (reference, yardstick))
    found = {
        kind: values_of(_observe(name, "features", dtype="float32", options={"tf32": [kind] if kind else []})) - r
        for kind in ("", "convolution")
    }
    size = float(np.linalg.norm(r))
    assert np.linalg.norm(found[""]) < 2 * np.linalg.norm(e - r)
    assert 1e-5 < np.linalg.norm(found["convolution"]) / size < 1e-3


def _attended(kernel: str, dtype: str, seed: int = 0, bfloat16_sums: bool = False) -> tuple[Any, Any]:
    """The kernel's output on drawn heads, and the right one, float64."""
    import torch
    from transformers import AttentionInterface

    import conformance.reference.runner  # noqa: F401 - registers the kernels

    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    query, key, value = (torch.randn(2, heads, 300, 64).to(kind) for heads in (4, 2, 2))
    mask = torch.zeros(2, 1, 300, 300).masked_fill(~torch.ones(300, 300, dtype=torch.bool).tril(), float("-inf"))
    wide = [each.double().repeat_interleave(4 // each.shape[1], 1) for each in (query, key, value)]
    scores = wide[0] @ wide[1].transpose(2, 3) / 8 + mask.double()
    right = (torch.softmax(scores, -1) @ wide[2]).transpose(1, 2)
    if bfloat16_sums:
        from conformance.reference import reduced

        shares = torch.softmax(scores, -1).to(kind).float()
        total = torch.zeros_like(right.transpose(1, 2), dtype=torch.float32)
        for start in range(0, 300, reduced.STEP):
            step = slice(start, start + reduced.STEP)
            total = (total + shares[..., step] @ wide[2][..., step, :].float()).bfloat16().float()
        return total.to(kind).transpose(1, 2).double().numpy(), right.numpy()
    output, _ = AttentionInterface()[kernel](None, query, key, value, mask.to(kind), scaling=0.125)
    return output.double().numpy(), right.numpy()


@pytest.mark.torch
def test_sums_in_float16_are_right_where_that_is_claimed_and_nowhere_else() -> None:
    def error(*asked: Any, **more: Any) -> float:
        found, right = _attended(*asked, **more)
        return float(np.sqrt(np.square(found - right).mean()))

    fused = error("conformance_ideal_fused", "float16")
    claimed = error("conformance_fp16_acc", "float16")
    assert claimed / fused > 1.25, "a claim of `fused` is broken by it"
    assert error("conformance_fp16_acc", "float16", 1) / claimed < 1.25
    assert fused / claimed < 1.25
    assert error("", "float16", bfloat16_sums=True) / claimed > 1.25, "sums in bfloat16 are not claimed"
    # Bfloat16's own rounding outweighs that of sums in float16.
    assert error("conformance_fp16_acc", "bfloat16") / error("conformance_ideal_fused", "bfloat16") < 1.25
