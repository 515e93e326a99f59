"""The profile of a single kernel: what its signature takes, and what the command line claims."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.kernel_arguments import ARGUMENTS, lacking
from conformance.kernel_profile import catalogue, kernel_profile
from conformance.names import UsageError
from conformance.profile import Claim, Profile
from conformance.runner import AttentionCall

NAME = "kernels.flash:attention"


def profile(*claims: str, takes: object = ARGUMENTS, dtypes: tuple[str, ...] = ("bfloat16", "float32")) -> Profile:
    return kernel_profile(NAME, dtypes, "cpu", "fork", frozenset(takes), claims)  # type: ignore[arg-type]


def claim(*claims: str, takes: object = ARGUMENTS) -> Claim:
    found = profile(*claims, takes=takes).claim("kernel", NAME)
    assert found is not None
    return found


def test_a_kernel_that_takes_everything_is_asked_for_everything_but_special_claims() -> None:
    found = claim()
    assert dict(found.precision) == {"bfloat16": "fused", "float32": "ieee"}
    assert (found.scale, found.softcap, found.window, found.encoder) == (True, True, True, True)
    assert "padded" in found.batch
    assert (found.deterministic, found.masked_rows, found.denormals, found.head_sizes) == (False, None, False, None)
    assert dict(found.kernels) == {"bfloat16": (NAME,), "float32": (NAME,)}


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("causal", "encoder", False),
        ("scale", "scale", False),
        ("window", "window", False),
        ("softcap", "softcap", False),
        ("lengths", "batch", ("unpadded", "chunked", "decode")),
    ],
)
def test_what_a_signature_leaves_out_is_not_claimed(name: str, attribute: str, value: object) -> None:
    assert getattr(claim(takes=set(ARGUMENTS) - {name}), attribute) == value


def test_claims_are_written_as_in_a_profile() -> None:
    found = claim("precision=eager", "precision.float32=tf32", "head_sizes=64, 128", "deterministic=true")
    assert dict(found.precision) == {"bfloat16": "eager", "float32": "tf32"}
    assert (found.head_sizes, found.deterministic) == ((64, 128), True)
    assert claim("batch=decode", takes={"causal"}).batch == ("decode",)
    assert claim("head_sizes=64", "masked_rows=zero", "batch=decode").head_sizes == (64,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("determinstic=true", "--claims: unknown key 'determinstic'; did you mean 'deterministic'?"),
        ("precision=fusd", "precision.bfloat16: 'fusd' is not one of the known values; did you mean 'fused'?"),
        ("precision.float3=ieee", "'float3' is not in --dtype; did you mean 'float32'?"),
        ("deterministic", "'deterministic' should look like KEY=VALUE"),
        ("kernels=none", "--claims: unknown key 'kernels'"),
        ("=true", "should look like KEY=VALUE"),
        ("deterministic=yes", "--claims: deterministic: 'yes' is text; it should be true or false"),
        ("head_sizes=sixty", "head_sizes[0]: 'sixty' is text"),
        ('softcap="\x7f', "should look like KEY=VALUE"),
    ],
)
def test_a_claim_that_cannot_be_is_refused_with_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        profile(text)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("window", "window=true", "window = true, but the function takes no 'window', so it can only be false"),
        ("lengths", "batch=padded", "batch = [\"padded\"], but the function takes no 'lengths', so it can only be ["),
    ],
)
def test_what_a_function_does_not_take_cannot_be_claimed(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        profile(text, takes=set(ARGUMENTS) - {name})
    assert said in str(raised.value)


@given(st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_text_as_a_claim_does_worse_than_being_refused(text: str) -> None:
    try:
        profile(text)
    except UsageError as error:
        assert error.faults


def test_the_shapes_are_what_the_inputs_are_asked_for() -> None:
    (model,) = catalogue("full").models
    assert model.parameters == {"inputs": {"shapes": "full"}}


def call(**arguments: object) -> AttentionCall:
    shape = arguments.pop("shape", (2, 1, 3, 16))
    tensor = np.zeros(shape, np.float32)  # type: ignore[call-overload]
    return AttentionCall(tensor, np.zeros((2, 1, 5, 16)), np.zeros((2, 1, 5, 16)), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "needed"),
    [
        (call(), ["causal"]),
        (call(causal=False), []),
        (call(shape=(2, 1, 1, 16)), []),  # one query at the end sees every key either way
        (call(causal=False, scale=0.25), []),  # 1 / sqrt(16)
        (call(causal=False, scale=0.5, window=3, softcap=20.0), ["scale", "window", "softcap"]),
        (call(causal=False, lengths=(5, 5)), []),
        (call(causal=False, lengths=(5, 4)), ["lengths"]),
    ],
)
def test_a_call_needs_the_arguments_that_change_its_answer(made: AttentionCall, needed: list[str]) -> None:
    assert lacking(made, ()) == needed
    assert lacking(made, needed) == []
