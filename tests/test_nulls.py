"""The null library as data: what there is, where each is correct, and that it takes no torch to know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.names import UsageError
from conformance.nulls.library import SEEDS, null, nulls

ROOT = Path(__file__).resolve().parent.parent
ROTARY = {"rope_theta": 10000.0}


def test_it_takes_neither_torch_nor_numpy_to_know_the_library() -> None:
    code = (
        "import sys; from conformance.nulls.library import nulls; nulls(); print({'torch', 'numpy'} & set(sys.modules))"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


def test_every_kind_of_correct_variation_is_there() -> None:
    families = {each.family for each in nulls().values()}
    assert families == {
        *("as-is", "batch", "order", "padding", "threads", "kernel", "rotary", "linear", "norm", "combined", "seed")
    }
    assert [each.options["batch_size"] for each in nulls().values() if each.family == "batch"] == [1, 8, 64]
    assert tuple(each.seed for each in nulls().values() if each.family == "seed") == SEEDS
    assert next(iter(nulls())) == "as-is"


def test_a_short_calibration_has_one_of_nearly_every_family() -> None:
    quick = {each.family for each in nulls().values() if each.quick}
    assert quick >= {"as-is", "batch", "padding", "kernel", "rotary", "linear", "norm", "combined"}


def test_every_null_says_in_a_sentence_what_it_does() -> None:
    for each in nulls().values():
        assert each.description.endswith(".") and len(each.description) < 120
    assert len({each.description for each in nulls().values()}) == len(nulls())


@pytest.mark.parametrize(
    ("id", "precision", "legal"),
    [
        ("kernel.rounded-scores", "eager", True),
        ("kernel.rounded-scores", "fused", False),
        ("kernel.exp-polynomial", "fused", True),
        ("kernel.exp-polynomial", "ieee", False),
        ("kernel.p-float16", "ieee", False),
        ("kernel.p-float32", "ieee", True),
        ("kernel.tile-16", "ieee", True),
        ("combined.device", "ieee", True),
        ("combined.fast", "ieee", False),
    ],
)
def test_what_rounds_more_than_is_claimed_is_no_correct_variation(id: str, precision: str, legal: bool) -> None:
    why = null(id).refusal(ROTARY, "embedding.last", "sdpa", {precision})
    assert (why is None) is legal
    assert legal or f"the claim {precision} allows" in str(why)


def test_the_strictest_of_several_claims_decides() -> None:
    assert null("kernel.rounded-scores").refusal(ROTARY, "multimodal", "sdpa", {"eager", "fused"}) is not None


@pytest.mark.parametrize(
    ("id", "configuration", "role", "attention", "legal"),
    [
        ("padding.side", ROTARY, "embedding.last", "sdpa", True),
        ("padding.side", ROTARY, "generation", "sdpa", False),
        ("padding.side", {}, "rerank.cross_encoder", "sdpa", False),
        ("rotary.up", {}, "embedding.encoder", "sdpa", False),
        ("rotary.up", {"text_config": ROTARY}, "multimodal", "sdpa", True),
        ("combined.device", {}, "embedding.encoder", "sdpa", False),
        ("kernel.tile-64", ROTARY, "generation", "sdpa:cudnn", True),
        ("kernel.tile-64", ROTARY, "generation", "flex_attention", False),
    ],
)
def test_a_null_applies_only_where_it_is_correct(
    id: str, configuration: dict[str, object], role: str, attention: str, legal: bool
) -> None:
    assert (null(id).refusal(configuration, role, attention, {"eager"}) is None) is legal


@pytest.mark.parametrize(
    ("id", "forms", "legal"),
    [
        ("padding.extra", {"unpadded", "decode"}, False),
        ("order.arrival", {"unpadded"}, False),
        ("batch.1", {"padded", "decode"}, False),
        ("batch.1", {"padded", "unpadded"}, True),
        ("padding.extra", (), True),
    ],
)
def test_a_form_of_batches_that_is_not_taken_is_not_asked_for(id: str, forms: set[str], legal: bool) -> None:
    assert (null(id).refusal(ROTARY, "embedding.last", "sdpa:flash", {"fused"}, forms) is None) is legal


def test_an_unknown_null_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown null 'kernel.tile-46'; did you mean 'kernel.tile-"):
        null("kernel.tile-46")
